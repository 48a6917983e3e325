"""Topic filters as clients write them, how two filters relate, and a trie of topics. Pure functions and values."""
