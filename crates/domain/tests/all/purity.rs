//! The domain asks no system for anything: not for files, sockets, processes, the time or chance.

use std::path::{Path, PathBuf};

fn sources(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).expect("the sources can be read") {
        let path = entry.expect("an entry").path();
        match path.extension() {
            _ if path.is_dir() => sources(&path, found),
            Some(ending) if ending == "rs" => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn no_source_of_the_domain_names_what_does_input_or_output() {
    let mut found = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
    assert!(found.len() > 30, "the sources were not found: {found:?}");
    for path in found {
        let text = std::fs::read_to_string(&path).expect("a source can be read");
        for banned in [
            "std::fs",
            "std::net",
            "std::os",
            "std::process",
            "std::thread",
            "std::env",
            "std::io",
            "tokio::",
            "rand::",
            "SystemTime",
            "Instant",
            "now_utc",
            "Ulid::new",
            "println!",
            "unsafe ",
        ] {
            assert!(!text.contains(banned), "{} names {banned}", path.display());
        }
    }
}
