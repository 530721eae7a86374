"""Results and errors as text for people: values in, renderables out."""
