//! The only way out of a sandbox: a forwarding proxy with rules.
