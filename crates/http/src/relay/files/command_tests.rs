//! Tests of the commands that name files.

use serde_json::json;

use super::*;

fn parse(channel: Channel, message: &Value) -> Command {
    Command::parse(channel, FilesLocation::Session, message.to_string().as_bytes())
}

fn parse_remote(channel: Channel, message: &Value) -> Command {
    Command::parse(channel, FilesLocation::Remote, message.to_string().as_bytes())
}

fn refusal(channel: Channel, message: &Value) -> Value {
    let Command::SetFiles(command) = parse(channel, message) else { panic!("a command that sets files") };
    assert_eq!(command.paths, ["/a", "C:\\b"]);
    serde_json::from_str(&command.refusal("/a", FilesLocation::Session)).expect("JSON")
}

const TEXT: &str = "the file /a does not exist in the session: upload it with POST /browsers/{id}/fs/upload and pass its \
                    path there";

#[test]
fn refusals_have_the_form_of_the_protocol_and_name_the_way_that_works() {
    let files = json!({ "objectId": "1", "files": ["/a", "C:\\b"] });
    let of_cdp = json!({ "method": "DOM.setFileInputFiles", "params": files, "id": 7, "sessionId": "S" });
    let error = json!({ "id": 7, "sessionId": "S", "error": { "code": -32_000, "message": TEXT } });
    assert_eq!(refusal(Channel::Cdp, &of_cdp), error);
    let of_bidi = json!({ "id": 8, "method": "input.setFiles", "params": files });
    let error = json!({ "type": "error", "id": 8, "error": "unable to set file input", "message": TEXT });
    assert_eq!(refusal(Channel::WebDriver, &of_bidi), error);
}

#[test]
fn texts_that_only_contain_a_name_are_no_commands() {
    let script =
        json!({ "id": 1, "method": "Runtime.evaluate", "params": { "expression": "'DOM.setFileInputFiles'" } });
    let of_bidi = json!({ "id": 1, "method": "input.setFiles", "params": { "files": ["/a"] } });
    let others = [
        script,
        of_bidi,
        json!("DOM.setFileInputFiles"),
        json!(["DOM.setFileInputFiles"]),
        json!({ "id": 1, "method": "DOM.setFileInputFiles" }),
        json!({ "id": 1, "method": "DOM.setFileInputFiles", "params": "DOM.setFileInputFiles" }),
        json!({ "id": 1, "method": "DOM.setFileInputFiles", "params": { "files": [1] } }),
        json!({ "id": "1", "method": "DOM.setFileInputFiles", "params": { "files": ["/a"] } }),
        json!({ "method": "DOM.setFileInputFiles", "params": { "files": ["/a"] } }),
        json!({ "id": 1, "method": "Browser.setDownloadBehavior", "params": [] }),
        json!({ "id": 1, "method": "Browser.cancelDownload", "params": "guid" }),
    ];
    for message in others {
        assert_eq!(parse(Channel::Cdp, &message), Command::Other, "{message}");
    }
    let half = br#"{"method":"DOM.setFileInputFiles","#;
    assert_eq!(Command::parse(Channel::Cdp, FilesLocation::Session, half), Command::Other);
}

#[test]
fn playwrights_downloads_go_to_the_directory_of_the_session() {
    let of = |directory: &str, behavior: &str| {
        let params = json!({ "behavior": behavior, "downloadPath": directory, "eventsEnabled": true });
        json!({ "id": 3, "method": "Browser.setDownloadBehavior", "params": params })
    };
    for directory in ["/tmp/playwright-artifacts-Ab12", "C:\\Users\\a\\Temp\\playwright-artifacts-Ab12"] {
        let Command::PlaywrightDownloads(replaced) = parse(Channel::Cdp, &of(directory, "allowAndName")) else {
            panic!("{directory}")
        };
        assert_eq!(serde_json::from_str::<Value>(&replaced).expect("JSON"), of("/home/casement/downloads", "allow"));
    }
}

/// Returns the directory and the command in its place, if a message names a directory that may be the client's.
fn directory(channel: Channel, message: &Value) -> Option<(String, Value)> {
    match parse(channel, message) {
        Command::SetDirectory(named) => Some((named.path, serde_json::from_str(&named.replacement).expect("JSON"))),
        other => {
            assert_eq!(other, Command::Other, "{message}");
            None
        }
    }
}

#[test]
fn a_directory_of_the_clients_machine_becomes_that_of_the_session_in_every_protocol() {
    let of_cdp = |path: &str| json!({ "behavior": "allowAndName", "downloadPath": path });
    let of_bidi = |path: &str| json!({ "type": "allowed", "destinationFolder": path });
    let messages = |path: &str| {
        [
            (Channel::Cdp, json!({ "method": "Browser.setDownloadBehavior", "params": of_cdp(path), "id": 1 })),
            (Channel::Cdp, json!({ "method": "Page.setDownloadBehavior", "params": of_cdp(path), "sessionId": "S" })),
            (
                Channel::WebDriver,
                json!({ "method": "browser.setDownloadBehavior", "params": { "downloadBehavior": of_bidi(path) } }),
            ),
            (
                Channel::WebDriver,
                json!({
                    "method": "goog:cdp.sendCommand",
                    "params": { "method": "Browser.setDownloadBehavior", "params": of_cdp(path) },
                }),
            ),
        ]
    };
    let inside = messages("/home/casement/downloads");
    for foreign in ["/Users/ada/Downloads", "C:\\Users\\ada", "/tmp/downloads", "/home/casement-2/x", "downloads"] {
        for ((channel, message), (_, expected)) in messages(foreign).into_iter().zip(&inside) {
            assert_eq!(directory(channel, &message), Some((foreign.to_owned(), expected.clone())), "{message}");
        }
    }
    for own in ["/home/casement/downloads/today", "/home/casement", ""] {
        for (channel, message) in messages(own) {
            assert_eq!(directory(channel, &message), None, "{message}");
        }
    }
    for without in [json!({ "behavior": "deny" }), json!({ "behavior": "default", "downloadPath": 1 })] {
        let message = json!({ "id": 1, "method": "Browser.setDownloadBehavior", "params": without });
        assert_eq!(directory(Channel::Cdp, &message), None);
    }
    let classic = json!({ "cmd": "Browser.setDownloadBehavior", "params": of_cdp("/Users/ada") });
    let (path, replacement) = directories::of_classic(classic).expect("a directory");
    assert_eq!((path.as_str(), replacement.contains(casement_domain::fs::DOWNLOADS)), ("/Users/ada", true));
}

#[test]
fn playwrights_downloads_of_a_remote_browser_go_where_its_server_wants_them() {
    let directory = "/tmp/playwright-artifacts-Ab12";
    let params = json!({ "behavior": "allowAndName", "downloadPath": directory, "eventsEnabled": true });
    let message = json!({ "id": 3, "method": "Browser.setDownloadBehavior", "params": params });
    let Command::PlaywrightDownloads(replaced) = parse_remote(Channel::Cdp, &message) else { panic!("{message}") };
    let replaced: Value = serde_json::from_str(&replaced).expect("JSON");
    assert_eq!(replaced["params"], json!({ "behavior": "default", "eventsEnabled": true }));
}

#[test]
fn a_file_that_a_remote_browser_does_not_have_is_refused_with_the_way_that_works() {
    let files = json!({ "files": ["/etc/passwd"] });
    let message = json!({ "id": 8, "method": "input.setFiles", "params": files });
    let Command::SetFiles(command) = parse_remote(Channel::Bidi, &message) else { panic!("{message}") };
    let refusal = command.refusal("/etc/passwd", FilesLocation::Remote);
    assert!(refusal.contains("unable to set file input") && refusal.contains("se/file"), "{refusal}");
}

#[test]
fn only_the_end_of_a_remote_session_is_answered_here() {
    let message = json!({ "id": 8, "method": "session.end", "params": {} });
    let Command::EndSession(answer) = parse_remote(Channel::Bidi, &message) else { panic!("{message}") };
    assert_eq!(
        serde_json::from_str::<Value>(&answer).expect("JSON"),
        json!({ "type": "success", "id": 8, "result": {} })
    );
    assert_eq!(parse(Channel::WebDriver, &message), Command::Other);
    let within = json!({ "id": 8, "method": "script.evaluate", "params": { "expression": "session.end" } });
    assert_eq!(parse_remote(Channel::Bidi, &within), Command::Other);
}
