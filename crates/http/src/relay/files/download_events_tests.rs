//! Tests of the marked events of downloads.

use serde_json::Value;

use super::*;

fn event(guid: &str) -> String {
    format!(r#"{{"method":"Browser.downloadProgress","params":{{"guid":"{guid}","state":"completed"}}}}"#)
}

#[test]
fn a_marked_id_is_no_path_and_names_the_way_that_works() {
    let guid = |location| {
        let event = marked(event("a-b").as_bytes(), location).expect("an event");
        let event: Value = serde_json::from_str(&event).expect("JSON");
        event["params"]["guid"].as_str().expect("a guid").to_owned()
    };
    let remote = guid(FilesLocation::Remote);
    assert!(remote.starts_with('\0') && unmarked(&remote) == Some("a-b"), "{remote}");
    let guid = guid(FilesLocation::Session);
    assert!(guid.starts_with('\0') && guid.contains(casement_domain::fs::DOWNLOADS) && guid.contains("fs/read_file"));
    assert_eq!(unmarked("a-b"), None);
}
