"""Files to components: headers, identification, streaming, pool."""
