"""What a person sees, as text: values in, renderables out."""
