"""Pages for a model, fetched by the platform where the provider cannot: `platform_managed`.

`domains` and `sources` decide which URLs may be fetched; `reading` fetches one through the egress
guard; `extracting` makes text of it, in a process of its own.
"""
