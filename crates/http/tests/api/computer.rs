//! The routes `…/computer`: mouse, keyboard and clipboard.

use casement_domain::{
    browser::{EngineError, EngineFault},
    computer::{Action, ActionError, Button, ClickKind, Point},
    session_operation::OperationError,
    testing::{browser_id, session_id},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::support::{Ports, TestApi};

fn at(operation: &str) -> String {
    format!("/browsers/{}/computer/{operation}", session_id(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_performs_its_body_and_returns_no_content() {
    let mut ports = Ports::of_first_session();
    ports.computer.expect_perform().returning(|browser, actions, _| {
        assert_eq!((browser, actions.len()), (browser_id(1), 1));
        Ok(())
    });
    let api = TestApi::start(ports);
    for (operation, body) in [
        ("click_mouse", json!({ "x": 1, "y": 2, "button": "right", "num_clicks": 2, "hold_keys": ["Ctrl"] })),
        ("move_mouse", json!({ "x": 1, "y": 2, "smooth": true, "duration_ms": 100 })),
        ("drag_mouse", json!({ "path": [[1, 2], [3, 4]], "steps_per_segment": 3, "step_delay_ms": 0 })),
        ("scroll", json!({ "x": 1, "y": 2, "delta_y": -3 })),
        ("press_key", json!({ "keys": ["Ctrl+t", "Return"], "duration": 5 })),
        ("type", json!({ "text": "täxt 😀\n", "delay": 1 })),
        ("batch", json!({ "actions": [{ "type": "set_cursor", "set_cursor": { "hidden": true } }] })),
    ] {
        let reply = api.post(&at(operation), body).await;
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{operation}: {reply}");
    }
    let reply = api.post(&at("cursor"), json!({ "hidden": false })).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "ok": true })));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_direct_route_does_the_same_with_the_sessions_token() {
    let mut ports = Ports::of_first_session();
    ports.computer.expect_perform().times(1).returning(|_, actions, _| {
        let [Action::Click(click)] = actions.as_slice() else { panic!("{actions:?}") };
        let seen = (click.at, click.button, click.kind, click.times);
        assert_eq!(seen, (Point { x: 7, y: 8 }, Button::Left, ClickKind::Click, 1));
        Ok(())
    });
    let api = TestApi::start(ports);
    let click = json!({ "x": 7, "y": 8 });
    let path =
        |permission| format!("/vm/{}/computer/click_mouse?jwt={}", session_id(1), api.token(session_id(1), permission));
    assert_eq!(api.post(&path(Permission::Drive), click.clone()).await.status, 204);
    assert_eq!(api.post(&path(Permission::View), click).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_are_named_before_anything_is_done() {
    let api = TestApi::start(Ports::of_first_session());
    let refused: [(&str, Value, &[&str]); 7] = [
        ("click_mouse", json!({}), &["required: x: is required", "required: y: is required"]),
        ("click_mouse", json!({ "x": 1920, "y": 0 }), &["out_of_range: x: must be from 0 to 1919"]),
        ("click_mouse", json!({ "x": "1", "y": 0 }), &["invalid_type: x: must be an integer"]),
        (
            "press_key",
            json!({ "keys": ["Ctrl+Nope"] }),
            &["not_allowed: keys[0]: \"Nope\" is no key; X11 key symbols are: Return, Ctrl, F5, plus"],
        ),
        ("cursor", json!({}), &["required: hidden: is required"]),
        (
            "batch",
            json!({ "actions": [{ "type": "sleep", "sleep": { "duration_ms": 1 } }, { "type": "scroll" }] }),
            &["required: actions[1].scroll: is required"],
        ),
        ("clipboard/write", json!({}), &["required: text: is required"]),
    ];
    for (operation, body, details) in refused {
        let reply = api.post(&at(operation), body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"), "{operation}: {reply}");
        assert_eq!(reply.details(), details, "{operation}");
    }
    let unknown = format!("/browsers/{}/computer/type", session_id(2));
    assert_eq!(api.post(&unknown, json!({ "text": "x" })).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_states_what_failed() {
    let hung = || EngineError::Failed { fault: EngineFault::BrowserHung, message: "no answer".to_owned() };
    let mut ports = Ports::of_first_session();
    ports
        .computer
        .expect_perform()
        .returning(move |_, actions, _| Err(ActionError { at: Some(actions.len() - 1), error: hung().into() }));
    ports.computer.expect_mouse().returning(move |_| Err(hung().into()));
    ports
        .computer
        .expect_read_clipboard()
        .returning(|_| Err(OperationError::TooLarge("the clipboard holds more".to_owned())));
    let api = TestApi::start(ports);
    let reply = api.post(&at("click_mouse"), json!({ "x": 1, "y": 1 })).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "browser_unavailable"), "{reply}");
    assert_eq!(reply.json()["inner_error"]["code"], "browser_hung");
    let sleep = json!({ "type": "sleep", "sleep": { "duration_ms": 1 } });
    let reply = api.post(&at("batch"), json!({ "actions": [sleep, sleep, sleep] })).await;
    assert_eq!((reply.status, reply.code().as_str()), (500, "internal"), "{reply}");
    assert!(reply.json()["message"].as_str().unwrap().starts_with("actions[2]: "), "{reply}");
    assert_eq!(api.post(&at("get_mouse_position"), json!({})).await.status, 503);
    assert_eq!(api.post(&at("clipboard/read"), json!({})).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clipboard_is_written_and_read_unchanged() {
    const TEXT: &str = "\0 a\r\n ä漢😀 \u{202e} e\u{301}";
    let mut ports = Ports::of_first_session();
    ports.computer.expect_write_clipboard().times(1).returning(|browser, text| {
        assert_eq!((browser, text.as_str()), (browser_id(1), TEXT));
        Ok(())
    });
    ports.computer.expect_read_clipboard().times(1).returning(|_| Ok(TEXT.to_owned()));
    ports.computer.expect_mouse().times(1).returning(|_| Ok(Point { x: 3, y: 4 }));
    let api = TestApi::start(ports);
    assert_eq!(api.post(&at("clipboard/write"), json!({ "text": TEXT })).await.status, 204);
    let reply = api.post(&at("clipboard/read"), json!({})).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "text": TEXT })));
    let reply = api.post(&at("get_mouse_position"), json!({})).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "x": 3, "y": 4 })));
}
