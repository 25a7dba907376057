"""Icons, drawn for a grid of 24 with a stroke of 1.75."""

# ruff: noqa: E501 - the numbers of a drawing

from __future__ import annotations

ICONS = {
    "flame": '<path d="M12 3c1 3.5 5.5 5.6 5.5 11a5.5 5.5 0 0 1-11 0c0-2.2 1-3.6 2-4.6.2 1.6.9 2.4 1.9 2.6C10 9 10.4 6 12 3Z"/>',
    "overview": '<rect x="4" y="4" width="7" height="9" rx="1.5"/><rect x="13" y="4" width="7" height="5" rx="1.5"/>'
    '<rect x="4" y="15" width="7" height="5" rx="1.5"/><rect x="13" y="11" width="7" height="9" rx="1.5"/>',
    "topics": '<path d="M4 7h16M4 12h16M4 17h10"/>',
    "groups": '<circle cx="9" cy="8.5" r="3"/><path d="M3.5 19c.6-3.2 2.7-5 5.5-5s4.9 1.8 5.5 5"/>'
    '<path d="M15.5 6a3 3 0 0 1 0 5.400M17 14.400c1.9.6 3.1 2.2 3.5 4.6"/>',
    "messages": '<path d="M4.5 6.500h15v10h-9l-4 3.500v-3.500h-2z"/><path d="M8 10h8M8 13h5"/>',
    "dlq": '<path d="M4 13l2.5-7.500h11L20 13v5.500H4z"/><path d="M4 13h4.500l1 2.500h5l1-2.500H20"/>',
    "brokers": '<rect x="4" y="4.5" width="16" height="6" rx="1.5"/><rect x="4" y="13.5" width="16" height="6" rx="1.5"/>'
    '<path d="M7.5 7.500h.01M7.5 16.500h.01M11 7.500h5.500M11 16.500h5.5"/>',
    "producers": '<path d="M4 12h11M11 7l5 5-5 5"/><path d="M20 5v14"/>',
    "traces": '<circle cx="6" cy="6" r="2"/><circle cx="18" cy="12" r="2"/><circle cx="6" cy="18" r="2"/>'
    '<path d="M8 6h4a4 4 0 0 1 4 4M8 18h4a4 4 0 0 0 4-4"/>',
    "lake": '<path d="M3.5 9c2-1.5 4-1.5 6 0s4 1.5 6 0 3.5-1.4 5-.3M3.5 14c2-1.5 4-1.5 6 0s4 1.5 6 0 3.5-1.4 5-.3'
    'M3.5 19c2-1.5 4-1.5 6 0s4 1.5 6 0 3.5-1.4 5-.3"/>',
    "jobs": '<path d="M5 5.500l1.5 1.500L9 4.500M5 12l1.5 1.500L9 11M5 18.500L6.5 20 9 17.500M12.5 6H20M12.5 12.500H20M12.5 19H20"/>',
    "audit": '<path d="M7 4h10v16l-2.5-1.500L12 20l-2.5-1.500L7 20z"/><path d="M10 8.500h4M10 12h4"/>',
    "security": '<path d="M12 3.500l7 2.500v5.500c0 4-2.8 7.2-7 9-4.2-1.8-7-5-7-9V6z"/><path d="M9 12l2.2 2.200L15.2 10"/>',
    "ops": '<path d="M4 12h3.500l2-5.5 4.5 11 2-5.500H20"/>',
    "search": '<circle cx="11" cy="11" r="6.5"/><path d="M16 16l4 4"/>',
    "sun": '<circle cx="12" cy="12" r="4"/><path d="M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.600L7 7M17 17l1.4 1.400M5.6 18.400L7 17M17 7l1.4-1.4"/>',
    "moon": '<path d="M19.5 14.500A8 8 0 0 1 9.5 4.500a8 8 0 1 0 10 10z"/>',
    "help": '<circle cx="12" cy="12" r="8.5"/><path d="M9.5 9.500a2.5 2.5 0 1 1 3.6 2.300c-.7.4-1.1.9-1.1 1.700M12 16.500h.01"/>',
    "menu": '<path d="M4 7h16M4 12h16M4 17h16"/>',
    "close": '<path d="M6 6l12 12M18 6L6 18"/>',
    "alert": '<path d="M12 4l8.5 15h-17z"/><path d="M12 10v4M12 16.500h.01"/>',
    "check": '<path d="M5 12.500l4.5 4.500L19 7.5"/>',
    "more": '<path d="M6 12h.01M12 12h.01M18 12h.01"/>',
    "left": '<path d="M14.5 6l-6 6 6 6"/>',
    "right": '<path d="M9.5 6l6 6-6 6"/>',
    "download": '<path d="M12 4v11M7.5 11l4.5 4.5 4.5-4.500M5 19.500h14"/>',
    "send": '<path d="M20 4L3.5 10.500l6.5 3 3 6.500z"/><path d="M20 4l-10 9.5"/>',
    "plus": '<path d="M12 5v14M5 12h14"/>',
    "trash": '<path d="M5 7h14M10 7V4.500h4V7M7 7l1 12.500h8L17 7"/>',
    "play": '<path d="M8 5.500v13l10.5-6.500z"/>',
    "pause": '<path d="M9 5.500v13M15 5.500v13"/>',
    "stop": '<rect x="7" y="7" width="10" height="10" rx="1"/>',
    "user": '<circle cx="12" cy="8.5" r="3.5"/><path d="M5 20c.7-3.8 3.3-6 7-6s6.3 2.2 7 6"/>',
    "clock": '<circle cx="12" cy="12" r="8.5"/><path d="M12 7.500V12l3 2"/>',
    "copy": '<rect x="8.5" y="8.5" width="11" height="11" rx="1.5"/><path d="M15.5 8.500v-4h-11v11h4"/>',
    "redo": '<path d="M19 12a7 7 0 1 1-2.3-5.200L19 9M19 4.500V9h-4.5"/>',
    "out": '<path d="M14 5H5v14h9M10 12h10M16.5 8l4 4-4 4"/>',
}
