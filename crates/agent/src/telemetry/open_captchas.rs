//! The open captchas, and how they are recognized.

use std::collections::HashMap;

use tokio::time::Instant;

use super::event::beginning;

/// The longest host and path in an event, in bytes.
const MAX_PLACE: usize = 2 << 10;

/// The providers of captchas by their frames: the host or its domain, the beginning of the path, the name in events.
const PROVIDERS: [(&str, &str, &str); 13] = [
    ("hcaptcha.com", "/captcha/", "hcaptcha"),
    ("google.com", "/recaptcha/", "recaptcha_v2"),
    ("recaptcha.net", "/recaptcha/", "recaptcha_v2"),
    ("challenges.cloudflare.com", "/", "turnstile"),
    ("geetest.com", "/", "geetest"),
    ("geevisit.com", "/", "geetest"),
    ("arkoselabs.com", "/", "other"),
    ("funcaptcha.com", "/", "other"),
    ("captcha-delivery.com", "/captcha/", "other"),
    ("captcha.awswaf.com", "/", "other"),
    ("mtcaptcha.com", "/", "other"),
    ("friendlycaptcha.com", "/", "other"),
    ("smartcaptcha.yandexcloud.net", "/", "other"),
];

/// An open captcha.
#[derive(Debug)]
pub(super) struct Captcha {
    pub(super) kind: &'static str,
    pub(super) session: String,
    /// The frame that contains the captcha's frame.
    pub(super) parent: String,
    pub(super) opened_at: Instant,
    /// The time at which the captcha times out.
    pub(super) deadline: Instant,
    pub(super) host: String,
    pub(super) path: String,
    /// The script context of the checks.
    pub(super) context: Option<i64>,
    /// True while a call of a check is pending.
    pub(super) is_pending: bool,
}

/// The open captchas, by their frames.
#[derive(Debug, Default)]
pub(super) struct OpenCaptchas(pub(super) HashMap<String, Captcha>);

impl OpenCaptchas {
    pub(super) fn clear(&mut self) {
        self.0 = HashMap::new();
    }

    /// Returns the frames of the captchas that match.
    pub(super) fn frames(&self, matches: impl Fn(&str, &Captcha) -> bool) -> Vec<String> {
        self.0.iter().filter(|(frame, captcha)| matches(frame, captcha)).map(|(frame, _)| frame.clone()).collect()
    }
}

/// Returns the kind of captcha at a URL.
pub(crate) fn kind_of(url: &str) -> Option<&'static str> {
    let (host, path) = place(url);
    let of_host = |name: &str| host.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'));
    let (.., kind) = PROVIDERS.iter().find(|(name, start, _)| of_host(name) && path.starts_with(start))?;
    // An invisible captcha decides without an interaction.
    let is_invisible = *kind == "recaptcha_v2" && url.contains("size=invisible");
    Some(if is_invisible { "recaptcha_v3" } else { kind })
}

/// Returns the host and the path of a URL.
pub(super) fn place(url: &str) -> (String, String) {
    let Some((_, rest)) = url.split_once("://") else { return Default::default() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host
        .rsplit_once(':')
        .map_or(host, |(host, port)| if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { authority });
    (beginning(host, MAX_PLACE).to_ascii_lowercase(), beginning(path, MAX_PLACE).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captchas_are_known_by_the_address_of_their_frame() {
        for (url, kind) in [
            ("https://newassets.hcaptcha.com/captcha/v1/abc/static/hcaptcha.html", Some("hcaptcha")),
            ("https://www.google.com/recaptcha/api2/anchor?ar=1&size=normal", Some("recaptcha_v2")),
            ("https://www.google.com/recaptcha/enterprise/anchor?size=invisible", Some("recaptcha_v3")),
            ("https://www.recaptcha.net/recaptcha/api2/bframe", Some("recaptcha_v2")),
            ("https://challenges.cloudflare.com/cdn-cgi/challenge-platform/h/b/turnstile", Some("turnstile")),
            ("https://geo.captcha-delivery.com/captcha/?x", Some("other")),
            ("https://www.google.com/maps", None),
            ("https://evilhcaptcha.com/captcha/", None),
            ("https://x.test/?https://hcaptcha.com/captcha/", None),
            ("about:blank", None),
        ] {
            assert_eq!(kind_of(url), kind, "{url}");
        }
    }

    #[test]
    fn a_place_has_no_query_port_or_user_name() {
        let place = |url| place(url);
        assert_eq!(place("https://u:p@Shop.test:8443/a/b?secret#x"), ("shop.test".to_owned(), "/a/b".to_owned()));
        assert_eq!(place("http://[::1]/"), ("[::1]".to_owned(), "/".to_owned()));
        assert_eq!(place("http://x.test?q"), ("x.test".to_owned(), "/".to_owned()));
    }
}
