"""Messages for later: delay levels and timers, how they are parked, kept and delivered when their time has come."""
