//! Rebuilds the crate when a migration was added, which the embedding macro does not do by itself.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
