//! Requests and responses as bytes.

use std::fmt;

use serde_json::Value;

/// Returns the bytes of a request. The public host is added if `headers` has no `Host` line.
pub(in crate::api) fn request(method: &str, path: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|line| line.to_ascii_lowercase().starts_with("host:")) {
        head.push_str("Host: casement.test\r\n");
    }
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    if !body.is_empty() {
        if !headers.iter().any(|line| line.to_ascii_lowercase().starts_with("content-type:")) {
            head.push_str("Content-Type: application/json\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    head.push_str(body);
    head.into_bytes()
}

/// Returns whether the head and the announced body of a reply are complete. Readers cannot wait for the end of the
/// connection, because one with an upgrade request is closed only after a while.
pub(super) fn is_complete(bytes: &[u8], head_only: bool) -> bool {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let reply = Reply::parse(bytes);
    let length = reply.header("content-length").and_then(|length| length.parse::<usize>().ok());
    head_only || reply.status == 204 || length.is_some_and(|length| bytes.len() >= end + 4 + length)
}

/// A parsed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::api) struct Reply {
    pub(in crate::api) status: u16,
    pub(in crate::api) headers: Vec<(String, String)>,
    pub(in crate::api) body: Vec<u8>,
}

impl Reply {
    pub(in crate::api) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no reply but {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        });
        Self { status, headers: headers.collect(), body: bytes[end + 4..].to_vec() }
    }

    pub(in crate::api) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header_name, _)| header_name == name).map(|(_, value)| value.as_str())
    }

    pub(in crate::api) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(in crate::api) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Returns the body of an error, which WebDriver clients get within their own.
    fn error(&self) -> Value {
        let body = self.json();
        let Some(value) = body.get("value") else { return body };
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "a WebDriver error is `value` alone: {self}");
        assert!(value["error"].is_string() && value["message"] == value["data"]["message"], "{self}");
        value["data"].clone()
    }

    /// Returns the code of an error, and checks the format of the error.
    pub(in crate::api) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self}");
        let body = self.error();
        assert!(body["message"].is_string(), "{self}");
        body["code"].as_str().expect("a code").to_owned()
    }

    /// Returns `code: message` of each refused field.
    pub(in crate::api) fn details(&self) -> Vec<String> {
        let body = self.error();
        let details = body["details"].as_array().unwrap_or_else(|| panic!("no details: {self}"));
        details
            .iter()
            .map(|detail| format!("{}: {}", detail["code"].as_str().unwrap(), detail["message"].as_str().unwrap()))
            .collect()
    }
}

/// Writes the status, the distinctive headers and the body.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            let is_distinctive = !matches!(
                name.as_str(),
                "date"
                    | "content-length"
                    | "connection"
                    | "x-request-id"
                    | "cache-control"
                    | "content-type"
                    | "x-content-type-options"
            );
            if is_distinctive {
                writeln!(f, "{name}: {value}")?;
            }
        }
        f.write_str(&String::from_utf8_lossy(&self.body))
    }
}
