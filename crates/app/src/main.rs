//! The casement program.

fn main() {}
