//! Commands that name files, over a relay.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::support::{Server, frame, read_frame, soon};

const MASK: Option<[u8; 4]> = Some([9, 0, 7, 255]);

fn set_files(id: u32, path: &str) -> Value {
    let params = json!({ "objectId": "1", "files": ["/tmp/a", path] });
    json!({ "id": id, "method": "DOM.setFileInputFiles", "params": params, "sessionId": "S" })
}

async fn send(stream: &mut TcpStream, message: &Value, mask: Option<[u8; 4]>) {
    stream.write_all(&frame(true, 1, message.to_string().as_bytes(), mask)).await.unwrap();
}

async fn receive(stream: &mut TcpStream) -> Value {
    let (opcode, payload) = soon(read_frame(stream)).await;
    assert_eq!(opcode, 1);
    serde_json::from_slice(&payload).unwrap()
}

#[actix_web::test]
async fn a_file_that_the_session_lacks_is_refused_and_later_commands_pass() {
    let server = Server::start().await;
    let (mut client, mut browser, _) = server.pair("/cdp").await;
    let (missing, present) = (set_files(1, "/home/me/report.pdf"), set_files(2, "/tmp/report.pdf"));
    let text = json!({ "id": 3, "method": "Runtime.evaluate", "params": { "expression": missing.to_string() } });
    for command in [&missing, &present, &text] {
        send(&mut client, command, MASK).await;
    }
    assert_eq!(receive(&mut browser).await, present);
    assert_eq!(receive(&mut browser).await, text);
    let refused = receive(&mut client).await;
    assert_eq!((&refused["id"], &refused["sessionId"]), (&json!(1), &json!("S")));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("/home/me/report.pdf") && message.contains("POST /browsers/{id}/fs/upload"), "{message}");
}

#[actix_web::test]
async fn a_refusal_is_sent_between_two_frames_of_the_browser() {
    let server = Server::start().await;
    let (mut client, mut browser, _) = server.pair("/cdp").await;
    let (large, next) = (json!("x".repeat(300_000)), json!("next"));
    let bytes = frame(true, 1, large.to_string().as_bytes(), None);
    let (first, second) = bytes.split_at(100_000);
    browser.write_all(first).await.unwrap();
    let mut begun = vec![0; 50_000];
    soon(tokio::io::AsyncReadExt::read_exact(&mut client, &mut begun)).await.unwrap();
    send(&mut client, &set_files(1, "relative"), MASK).await;
    // The next command waits for the response.
    send(&mut client, &json!({ "id": 2 }), MASK).await;
    browser.write_all(second).await.unwrap();
    send(&mut browser, &next, None).await;
    let mut rest = std::io::Cursor::new(begun);
    let mut whole = tokio::io::AsyncReadExt::chain(&mut rest, &mut client);
    assert!(soon(read_frame(&mut whole)).await.1 == large.to_string().into_bytes());
    let got = [receive(&mut client).await, receive(&mut client).await];
    assert!(got.iter().any(|message| message["id"] == 1) && got.contains(&next), "{got:?}");
    assert_eq!(receive(&mut browser).await, json!({ "id": 2 }));
}

#[actix_web::test]
async fn a_flood_of_refused_commands_is_answered_one_by_one_in_order() {
    let server = Server::start().await;
    let (mut client, _browser, _) = server.pair("/cdp").await;
    let count = 2000;
    let flood: Vec<u8> =
        (0..count).flat_map(|id| frame(true, 1, set_files(id, "C:\\a").to_string().as_bytes(), MASK)).collect();
    let (mut reads, mut writes) = client.split();
    let answered = async {
        for id in 0..count {
            let (_, payload) = read_frame(&mut reads).await;
            assert_eq!(serde_json::from_slice::<Value>(&payload).unwrap()["id"], id);
        }
    };
    let (written, ()) = soon(async { tokio::join!(writes.write_all(&flood), answered) }).await;
    written.unwrap();
}

#[actix_web::test]
async fn downloads_of_a_playwright_go_to_the_session_and_their_ids_are_no_paths() {
    let server = Server::start().await;
    let (mut client, mut browser, _) = server.pair("/cdp").await;
    let begin = |guid: &Value| {
        let params = json!({ "guid": guid, "suggestedFilename": "a.csv" });
        let text = json!({ "method": "Browser.downloadWillBegin", "params": params }).to_string();
        // Chromium's order of the members.
        assert!(text.starts_with(r#"{"method":"#), "{text}");
        json!({ "method": "Browser.downloadWillBegin", "params": params })
    };
    let id = json!("8f3c-1");
    // Without the command of a Playwright, events pass as they are.
    send(&mut browser, &begin(&id), None).await;
    assert_eq!(receive(&mut client).await, begin(&id));

    let params =
        json!({ "behavior": "allowAndName", "downloadPath": "/tmp/playwright-artifacts-1", "eventsEnabled": true });
    send(&mut client, &json!({ "id": 1, "method": "Browser.setDownloadBehavior", "params": params }), MASK).await;
    let changed = receive(&mut browser).await["params"].take();
    let expected = json!({ "behavior": "allow", "downloadPath": "/home/casement/downloads", "eventsEnabled": true });
    assert_eq!(changed, expected);

    send(&mut browser, &begin(&id), None).await;
    let marked = receive(&mut client).await["params"]["guid"].take();
    assert!(marked.as_str().unwrap().starts_with('\0') && marked.as_str().unwrap().ends_with("8f3c-1"), "{marked}");
    send(&mut client, &json!({ "id": 2, "method": "Browser.cancelDownload", "params": { "guid": marked } }), MASK)
        .await;
    assert_eq!(receive(&mut browser).await["params"]["guid"], id);
}

#[actix_web::test]
async fn a_download_directory_that_the_session_lacks_becomes_its_own() {
    let server = Server::start().await;
    let (mut client, mut browser, _) = server.pair("/cdp").await;
    let of = |path: &str| {
        let params = json!({ "behavior": "allow", "downloadPath": path });
        json!({ "id": 1, "method": "Browser.setDownloadBehavior", "params": params })
    };
    for (named, expected) in [("/Users/ada", "/home/casement/downloads"), ("/tmp/there", "/tmp/there")] {
        send(&mut client, &of(named), MASK).await;
        assert_eq!(receive(&mut browser).await, of(expected));
    }
}
