"""What has to hold between the lines of an export, checked before anything is stored."""
