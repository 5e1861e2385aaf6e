//! Starts, finds and ends isolated groups of processes.
