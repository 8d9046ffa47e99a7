"""Running graphs: plan, cache, walk, save, recover."""
