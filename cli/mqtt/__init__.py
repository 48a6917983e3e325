"""The commands that are about MQTT: clients for a quick try, and users of the MQTT front.

The one room that knows a front; its modules are loaded when they are the command. Read first: `connection.py`.
"""
