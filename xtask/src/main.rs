//! What a developer or CI does.

fn main() {}
