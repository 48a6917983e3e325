"""Object stores: the calls that tiering asks of one, and the stores that answer them.

Knows names and bytes, not what they mean. Read `bucket` first; `bucket_url` chooses by the scheme of a URL.
"""
