"""The course: lessons as files that a test can run, and what their cells find."""
