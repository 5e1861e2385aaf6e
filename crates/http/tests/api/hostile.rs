//! Hostile input. Each is refused with the name of its field, and no port is called.

use std::time::Duration;

use casement_domain::page::Listed;
use pretty_assertions::assert_eq;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Key, Ports, TestApi, request};

#[tokio::test(flavor = "multi_thread")]
async fn fields_out_of_bounds_are_named() {
    let api = TestApi::start(Ports::default());
    let tags: Map<String, Value> = (0..51).map(|n| (n.to_string(), "x".into())).collect();
    let side = "out_of_range: viewport.width: must be from 1 to 16384";
    for (body, details) in [
        (json!({ "viewport": { "width": 0, "height": 1 } }), vec![side]),
        (json!({ "viewport": { "width": -1, "height": 1 } }), vec![side]),
        (json!({ "viewport": { "width": 1_000_000_000, "height": 1 } }), vec![side]),
        (
            json!({ "viewport": { "width": 1.5, "height": 1 } }),
            vec!["invalid_type: viewport.width: must be an integer"],
        ),
        (
            json!({ "viewport": { "width": "1", "height": 1 } }),
            vec!["invalid_type: viewport.width: must be an integer"],
        ),
        (json!({ "viewport": [1, 1] }), vec!["invalid_type: viewport: must be an object"]),
        (json!({ "name": "a\u{0}b" }), vec!["invalid_format: name: may not hold control characters"]),
        (json!({ "name": "a\nb" }), vec!["invalid_format: name: may not hold control characters"]),
        (json!({ "name": "n".repeat(10_240) }), vec!["too_long: name: must have at most 255 characters"]),
        (json!({ "name": "../x" }), vec!["invalid_format: name: may not hold '/'"]),
        (json!({ "tags": tags }), vec!["too_many: tags: must have at most 50 pairs"]),
        (json!({ "tags": { "a": 1 } }), vec!["invalid_type: tags.a: must be a string"]),
        (json!({ "timeout_seconds": 9 }), vec!["out_of_range: timeout_seconds: must be from 10 to 259200"]),
        (json!({ "start_url": "javascript:alert(1)" }), vec!["invalid_format: start_url: must be an absolute URL"]),
        (json!({ "headless": "yes" }), vec!["invalid_type: headless: must be true or false"]),
        (
            json!({ "browser_policy": { "ProxyMode": "x" } }),
            vec!["blocked: browser_policy.ProxyMode: is never allowed"],
        ),
        (
            json!({ "chrome_policy": { "HeadlessMode": 1 } }),
            vec!["blocked: browser_policy.HeadlessMode: is never allowed"],
        ),
        (json!({ "profile": {} }), vec!["required: profile: needs an id or a name"]),
        (
            json!({ "profile": { "id": "a", "name": "b" } }),
            vec!["mutually_exclusive: profile: takes an id or a name, not both"],
        ),
        (json!({ "extensions": [{}] }), vec!["required: extensions[0]: needs an id or a name"]),
        (
            json!({ "telemetry": { "enabled": false, "browser": { "console": { "enabled": true } } } }),
            vec!["mutually_exclusive: telemetry: cannot be off and name categories"],
        ),
        (
            json!({ "timeout_seconds": 0, "viewport": { "width": 1 }, "name": "" }),
            vec![
                "too_short: name: must have at least 1 character",
                "out_of_range: timeout_seconds: must be from 10 to 259200",
                "required: viewport.height: is required",
            ],
        ),
    ] {
        let reply = api.post("/browsers", &body).await;
        assert_eq!((reply.status, reply.details()), (400, details.into_iter().map(str::to_owned).collect()), "{body}");
        assert_eq!(reply.code(), "invalid_input");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_telemetry_category_is_named() {
    let api = TestApi::start(Ports::default());
    for category in ["monitor", "Console", "x"] {
        let body = json!({ "telemetry": { "browser": { category: { "enabled": true } } } });
        let details = api.post("/browsers", body).await.details();
        assert!(
            details[0].starts_with(&format!("not_allowed: telemetry.browser.{category}: is not one of console,")),
            "{details:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_json_is_refused() {
    let api = TestApi::start(Ports::default());
    for body in [
        r#"{"headless": tr"#,
        r#"{"headless": true"#,
        r#"{"headless": true} x"#,
        r#"{"headless": true, "headless": false}"#,
        r#"{"viewport": {"width": 1, "width": 2, "height": 1}}"#,
        "\u{feff}{}",
        "nonsense",
    ] {
        let reply = api.post("/browsers", body).await;
        assert_eq!((reply.status, &*reply.code()), (400, "bad_request"), "{body}");
    }
    for body in ["[]", "null", "5", "\"x\""] {
        assert_eq!(api.post("/browsers", body).await.details(), ["invalid_type: body: must be an object"], "{body}");
    }
    let deep =
        format!("{{\"browser_policy\": {}{}}}", "{\"a\":".repeat(100_000), "1".to_owned() + &"}".repeat(100_000));
    assert_eq!(api.post("/browsers", deep).await.code(), "bad_request");
}

/// Each value takes a hundred times the memory of its text.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_too_many_values_is_refused_while_it_is_parsed() {
    let api = TestApi::start(Ports::default());
    for value in ["{\"\":0}", "[]", "0"] {
        let body = format!("{{\"x\":[{}0]}}", format!("{value},").repeat(60_000));
        let reply = api.post("/browsers", body).await;
        assert_eq!((reply.status, &*reply.code()), (400, "bad_request"), "{value}");
    }
    let fewer = format!("{{\"x\":[{}0]}}", "0,".repeat(49_000));
    assert_ne!(api.post("/browsers", fewer).await.code(), "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded_with_and_without_a_content_length() {
    let api = TestApi::start(Ports::default());
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let oversized = request("POST", "/browsers", &[&key, "Content-Length: 8388609"], "");
    let reply = api.raw(oversized).await;
    assert_eq!((reply.status, &*reply.code()), (413, "payload_too_large"));
    let mut untold = request("POST", "/browsers", &[&key, "Transfer-Encoding: chunked"], "");
    for _ in 0..9 {
        untold.extend_from_slice(b"100000\r\n");
        untold.extend_from_slice(&vec![b' '; 1024 * 1024]);
        untold.extend_from_slice(b"\r\n");
    }
    assert_eq!(api.raw(untold).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_heads_are_bounded() {
    let api = TestApi::start(Ports::default());
    let reply = api.request("GET", &format!("/healthz?x={}", "y".repeat(16 * 1024)), &[], "").await;
    assert_eq!((reply.status, &*reply.code()), (400, "bad_request"));
    let wide: Vec<String> = (0..5).map(|n| format!("X-{n}: {}", "y".repeat(14 * 1024))).collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let reply = api.request("GET", "/healthz", &wide, "").await;
    assert_eq!((reply.status, &*reply.code()), (400, "bad_request"));
    // A head of a megabyte, a hundred headers and malformed HTTP get the same response.
    let many: Vec<String> = (0..200).map(|n| format!("X-{n}: y")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for raw in [
        request("GET", "/healthz", &[&format!("X: {}", "y".repeat(1024 * 1024))], ""),
        request("GET", "/healthz", &many, ""),
        b"nonsense\r\n\r\n".to_vec(),
        request("POST", "/browsers", &["Content-Length: -1"], ""),
    ] {
        let reply = api.raw(raw).await;
        assert_eq!((reply.status, &*reply.code()), (400, "bad_request"), "{reply}");
        assert_eq!(reply.header("x-request-id").map(str::len), Some(26));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_host_is_refused_before_the_key_is_checked() {
    let api = TestApi::start(Ports::default());
    let address = api.server.local_addr();
    for host in
        ["attacker.test", "attacker.test:443", "casement.test.attacker.test", "x@casement.test", "", "127.0.0.1:1"]
    {
        // A load balancer probes by address, or without a name.
        let is_probe = host.is_empty() || host.starts_with("127.");
        for path in ["/browsers", "/healthz", "/vm/x/cdp", "/live/x", "/nowhere"] {
            if path == "/healthz" && is_probe {
                continue;
            }
            let reply = api.request("GET", path, &[&format!("Host: {host}")], "").await;
            assert_eq!((reply.status, &*reply.code()), (400, "bad_request"), "{host} {path}");
        }
    }
    for raw in [
        "GET /browsers HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1\r\nHost: casement.test\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: casement.test\r\nHost: attacker.test\r\n\r\n",
        "GET http://attacker.test/healthz HTTP/1.1\r\nConnection: close\r\nHost: casement.test\r\n\r\n",
    ] {
        assert_eq!(api.raw(raw).await.status, 400, "{raw}");
    }
    for host in [
        "casement.test".to_owned(),
        "CASEMENT.test:443".to_owned(),
        address.to_string(),
        format!("localhost:{}", address.port()),
    ] {
        assert_eq!(api.request("GET", "/healthz", &[&format!("Host: {host}")], "").await.status, 200, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_needs_a_credential_of_its_own() {
    let mut ports = Ports::default();
    ports.sessions.expect_list().returning(|_, _, _| Ok(Listed { items: Vec::new(), next_offset: None }));
    let api = TestApi::start(ports);
    let upgrade = ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="];
    for origin in
        ["https://attacker.test", "null", "https://casement.test:444", "http://casement.test.attacker.test", "file://"]
    {
        let origin = format!("Origin: {origin}");
        for path in [
            "/browsers",
            "/healthz",
            "/vm/00000000000000000000000001/cdp",
            "/live/00000000000000000000000001/socket",
            "/connect",
            "/json/version",
            "/wd/hub/session/a-b/url",
        ] {
            let lines: Vec<&str> = upgrade.into_iter().chain([origin.as_str()]).collect();
            let reply = api.request("GET", path, &lines, "").await;
            assert_eq!((reply.status, &*reply.code()), (403, "forbidden"), "{origin} {path}");
            let basic = "Authorization: Basic eDp5";
            let lines: Vec<&str> = lines.into_iter().chain([basic]).collect();
            assert_eq!(api.request("GET", path, &lines, "").await.status, 403, "a browser sends that by itself");
        }
        let key = format!("Authorization: Bearer {}", Key::Organization.text());
        assert_eq!(api.request("GET", "/browsers", &[&key, &origin], "").await.status, 200);
    }
    assert_eq!(api.request("GET", "/healthz", &["Origin: https://casement.test"], "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_site_has_no_effect() {
    let api = TestApi::start(Ports::default());
    for path in [
        "/browsers",
        "/browser_pools",
        "/browser_pools/x/acquire",
        "/browser_pools/x/flush",
        "/browser_pools/x/release",
        "/browsers/00000000000000000000000001/computer/screenshot",
        "/vm/00000000000000000000000001/computer/screenshot",
    ] {
        for kind in ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"] {
            let kind = format!("Content-Type: {kind}");
            let foreign = api.request("POST", path, &[&kind, "Origin: https://attacker.test"], "{}").await;
            assert_eq!(foreign.status, 403, "{path}");
            // Some browsers omit the origin.
            assert_eq!(api.request("POST", path, &[&kind], "{}").await.status, 401, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_urls_are_refused() {
    let api = TestApi::start(Ports::default());
    for path in ["/browsers/%ff", "/browsers/%zz", "/browsers?limit=%", "/browser_pools/%"] {
        assert_eq!(api.get(path).await.code(), "bad_request", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_the_path_is_an_unknown_name_and_never_reaches_the_store() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, which, _| {
        assert!(!format!("{which:?}").contains("\\0"));
        Ok(None)
    });
    ports.pools.expect_find().returning(|_, which| {
        assert!(!format!("{which:?}").contains("\\0"));
        Ok(None)
    });
    let api = TestApi::start(ports);
    for (method, path) in [
        ("GET", "/browsers/NAME"),
        ("PATCH", "/browsers/NAME"),
        ("GET", "/browser_pools/NAME"),
        ("POST", "/browser_pools/NAME/acquire"),
    ] {
        let known = api.call(method, &path.replace("NAME", "unknown"), "{}").await;
        assert_eq!((known.status, &*known.code()), (404, "not_found"), "{method} {path}");
        let nul = api.call(method, &path.replace("NAME", "a%00b"), "{}").await;
        assert_eq!(nul.to_string().replace("a\\u001ab", "unknown"), known.to_string(), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_a_filter_is_refused_with_its_name() {
    let api = TestApi::start(Ports::default());
    for (path, parameter) in [
        ("/browsers?query=%00", "query"),
        ("/browsers?tags[a]=%00", "tags"),
        ("/browsers?tags[%00]=a", "tags"),
        ("/browser_pools?name=%00&query=x", "name"),
        ("/browser_pools?query=a%00", "query"),
    ] {
        let reply = api.get(path).await;
        assert_eq!(reply.details(), [format!("invalid_format: {parameter}: may not hold a NUL")], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_twenty_extensions_are_refused_before_any_lookup() {
    let mut ports = Ports::default();
    ports.extensions.expect_find().returning(|_, _| Ok(None));
    let api = TestApi::start(ports);
    let extensions = |n| json!({ "size": 1, "extensions": vec![json!({ "id": "e" }); n] });
    for path in ["/browsers", "/browser_pools"] {
        let many = api.post(path, extensions(21)).await;
        assert_eq!(many.details(), ["too_many: extensions: must have at most 20"], "{path}");
        let unknown = api.post(path, extensions(20)).await.details();
        assert_eq!(unknown.len(), 20, "{path}");
        assert_eq!(unknown[19], "reference_not_found: extensions[19]: there is no extension e", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_names_every_refused_field() {
    let api = TestApi::start(Ports::default());
    let both = json!({ "id": "a", "name": "b" });
    let body = json!({
        "name": "", "timeout_seconds": 1, "profile": {}, "extensions": [{ "id": "a" }, both],
        "browser_policy": { "a": 1 }, "chrome_policy": { "a": 2 },
        "telemetry": { "browser": { "x": {}, "y": {} } },
    });
    let category =
        "is not one of console, page, interaction, network, control, connection, system, screenshot, captcha";
    let extension = "mutually_exclusive: extensions[1]: takes an id or a name, not both".to_owned();
    let profile = "required: profile: needs an id or a name".to_owned();
    let ours = [
        "mutually_exclusive: chrome_policy: is an alias of browser_policy, and the two values differ".to_owned(),
        format!("not_allowed: telemetry.browser.x: {category}"),
        format!("not_allowed: telemetry.browser.y: {category}"),
    ];
    let timeout = "out_of_range: timeout_seconds: must be from 10 to 259200".to_owned();
    let short = "too_short: name: must have at least 1 character".to_owned();
    let of_both = [timeout, profile, extension];
    let create = api.post("/browsers", &body).await.details();
    assert_eq!(create, [&[short][..], &of_both, &ours].concat());
    let pool = api.post("/browser_pools", &body).await.details();
    let size = "required: size: is required".to_owned();
    assert_eq!(pool, [&[size][..], &of_both, &ours].concat());
    let changed = api.patch("/browser_pools/x", &body).await.details();
    assert_eq!(changed, [&of_both[..], &ours].concat());
    let session = api.patch("/browsers/x", json!({ "profile": {}, "viewport": { "width": 1 } })).await.details();
    assert_eq!(session, ["required: profile: needs an id or a name", "required: viewport.height: is required"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_chunks_get_a_response_whether_or_not_a_handler_runs() {
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    for keys_delay in [Duration::ZERO, Duration::from_millis(300)] {
        let api = TestApi::start(Ports { keys_delay, ..Ports::default() });
        for body in ["zz\r\n", "2\r\n{}\r\nzz\r\n{}\r\n0\r\n\r\n", "-1\r\n{}\r\n"] {
            let lines = [key.as_str(), "Transfer-Encoding: chunked", "Content-Type: application/json"];
            let mut raw = request("POST", "/browser_pools", &lines, "");
            raw.extend_from_slice(body.as_bytes());
            let reply = api.raw(raw).await;
            assert_eq!((reply.status, &*reply.code()), (400, "bad_request"), "{body:?} {keys_delay:?}");
            assert_eq!(reply.header("x-request-id").map(str::len), Some(26));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_disconnects_during_a_request_gets_no_response() {
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let api = TestApi::start(Ports { keys_delay: Duration::from_secs(600), ..Ports::default() });
    let mut stream = api.connect().await;
    stream.write_all(&request("POST", "/browser_pools", &[&key], "{}")).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut all)).await.expect("an end").unwrap();
    assert_eq!(all, b"");
}
