//! Tests of the commands that name files.

use serde_json::json;

use super::*;

fn parse(channel: Channel, message: &Value) -> Command {
    Command::parse(channel, message.to_string().as_bytes())
}

fn refusal(channel: Channel, message: &Value) -> Value {
    let Command::SetFiles(command) = parse(channel, message) else { panic!("a command that sets files") };
    assert_eq!(command.paths, ["/a", "C:\\b"]);
    serde_json::from_str(&command.refusal("/a")).expect("JSON")
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
    assert_eq!(Command::parse(Channel::Cdp, br#"{"method":"DOM.setFileInputFiles","#), Command::Other);
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
    let mut of_a_session = of("/tmp/playwright-artifacts-Ab12", "allowAndName");
    of_a_session["sessionId"] = "S".into();
    for other in [of("/tmp/downloads", "allowAndName"), of("/tmp/playwright-artifacts-1", "deny"), of_a_session] {
        assert_eq!(parse(Channel::Cdp, &other), Command::Other, "{other}");
    }
}
