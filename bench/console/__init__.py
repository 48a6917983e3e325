"""`timestone bench console`: what figures and console cost a server, and how fast the console answers.

`command.py` has the rows and their goals and is what to read first; `pages.py` is what a browser asks for,
`browsing.py` asks it, `large_store.py` fills a store, `costs.py` and `answers.py` measure. The load is that of `mqtt/`.
"""
