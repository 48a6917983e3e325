"""Read side of a subscription: one feed for each session and log, shared groups, replays, retained messages. A feed
holds an offset and the window of unacknowledged deliveries. Read `feed` first."""
