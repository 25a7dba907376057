"""The controller: who is master of each broker name, since when, and who has everything that was acknowledged.

`replicas` holds the state and the events that change it, `verdicts` and `election` decide, `liveness` knows who is
alive, `decisions` is the interface to where decisions are kept (`journal`), `server` puts it all on the network.
"""
