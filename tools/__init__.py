"""Build scripts of this repository; never imported by what we ship."""
