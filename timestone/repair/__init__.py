"""Tools for a store that is examined from outside: inspection, salvage, backup. The engine does not import this
room. Read `inspection` first."""
