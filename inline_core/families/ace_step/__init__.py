"""ACE-Step 1.5: music from text and lyrics."""
