"""Chapter 08, one file an exercise or two. Learners are not told these by name."""
