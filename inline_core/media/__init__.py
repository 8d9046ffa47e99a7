"""Pictures, videos and sounds: values, formats, probing, encoding."""
