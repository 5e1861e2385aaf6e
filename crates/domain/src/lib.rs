//! Resources, rules, use cases and ports of Casement; no I/O.
