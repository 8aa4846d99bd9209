"""The eval views: what was measured, what failed, and what an A/B means for the goldens."""
