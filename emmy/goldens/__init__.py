"""Golden shapes, the recorded best configurations of each GPU, and reviewed changes to them."""
