"""The upper half of `gen chat`: what is typed, and how answers are shown."""
