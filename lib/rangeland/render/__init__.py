"""What a person sees, as pictures of text: values in, renderables out."""
