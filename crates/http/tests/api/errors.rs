//! The documented error table matches the code.

use std::path::Path;

use casement_http::Code;
use pretty_assertions::assert_eq;

/// Renders `docs/errors.md`.
fn page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         Every answer with a status of 400 and above has this body, from every route but those for \
         [WebDriver clients](#errors-for-webdriver-clients):\n\n\
         ```json\n\
         {\"code\": \"invalid_input\", \"message\": \"2 fields are not valid\",\n \
          \"details\": [{\"code\": \"required\", \"message\": \"size: is required\"},\n             \
                      {\"code\": \"out_of_range\", \"message\": \"timeout_seconds: must be from 10 to 259200\"}]}\n\
         ```\n\n\
         `details` comes with `invalid_input` only, one per refused field. `inner_error`, with a `code` and a `message` of its \
         own, says what failed below, where something did. `X-Request-Id` finds the request in the log.\n\n\
         `Retry-After` comes with 503, which promises that nothing was done, and with `rate_limited`. `x-should-retry: false` \
         says that the same call would fail again, or might be done twice.\n\n\
         JSON is `bad_request` also when it has a key twice, more than 64 levels or more than 50,000 values.\n\n\
         ## Errors for WebDriver clients\n\n\
         Below `/wd/hub` and `/vm/{session_id}/wd` the body is that of the WebDriver protocol, `value` alone, because some \
         clients read the class of an error only then. `data` is the error as above:\n\n\
         ```json\n\
         {\"value\": {\"error\": \"session not created\", \"message\": \"2 fields are not valid\", \"stacktrace\": \"\",\n           \
         \"data\": {\"code\": \"invalid_input\", \"message\": \"2 fields are not valid\", \"details\": []}}}\n\
         ```\n\n\
         ## Codes\n\n\
         This table is printed by a test: `UPDATE_DOCS=1 cargo test -p casement-http errors`.\n\n\
         | code | status | when |\n| --- | --- | --- |\n",
    );
    for code in Code::ALL {
        page.push_str(&format!("| `{}` | {} | {} |\n", code.as_str(), code.status(), code.when()));
    }
    page
}

#[test]
fn the_documented_error_table_matches_the_code() {
    assert_committed("docs/errors.md", &page());
}

fn assert_committed(file: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), made, "{file}: run it with UPDATE_DOCS=1");
}

#[test]
fn every_code_is_named_once() {
    let mut names: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Code::ALL.len());
    assert!(Code::ALL.iter().all(|code| code.status() >= 400));
}
