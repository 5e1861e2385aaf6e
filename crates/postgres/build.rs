//! Builds the crate anew when a migration was added: the macro that embeds them does not say so itself.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
