//! Patterns of URLs: `<scheme>://<host><path>`.

/// A pattern: the scheme `http`, `https` or `*` for both, a host that may be `*` or begin with `*.`, and a path in which
/// `*` stands for any characters. The path includes the query; a fragment is not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlPattern {
    scheme: String,
    host: String,
    path: String,
}

impl UrlPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("must have the form scheme://host/path")?;
        if !matches!(scheme, "http" | "https" | "*") {
            return Err("must begin with http://, https:// or *://");
        }
        let path_at = rest.find('/').ok_or("must have a path, at least /")?;
        let (host, path) = rest.split_at(path_at);
        let named = host.strip_prefix("*.").unwrap_or(host);
        if host != "*" && (named.is_empty() || named.contains('*')) {
            return Err("must have a host, which may be * or begin with *.");
        }
        Ok(Self { scheme: scheme.to_owned(), host: host.to_ascii_lowercase(), path: path.to_owned() })
    }

    /// Returns true if it matches a URL as the browser writes it.
    pub(super) fn matches(&self, url: &str) -> bool {
        let url = url.split('#').next().unwrap_or_default();
        let Some((scheme, rest)) = url.split_once("://") else { return false };
        let is_web = matches!(scheme, "http" | "https");
        if !is_web || (self.scheme != "*" && self.scheme != scheme) {
            return false;
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        self.matches_host(host) && is_like(path, &self.path)
    }

    fn matches_host(&self, host: &str) -> bool {
        match self.host.strip_prefix("*.") {
            _ if self.host == "*" => true,
            Some(parent) => host.strip_suffix(parent).is_some_and(|below| below.is_empty() || below.ends_with('.')),
            None => host == self.host,
        }
    }
}

/// Returns true if the text is like the pattern, in which `*` stands for any characters.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in between.split('*') {
        let Some(found) = text.find(part) else { return false };
        text = &text[found + part.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_by_scheme_host_and_path() {
        for (pattern, matching, other) in [
            ("https://shop.example/*", "https://shop.example/a?b#c", "http://shop.example/a"),
            ("*://shop.example/*", "http://shop.example/", "file:///shop.example/"),
            ("https://*.example/*", "https://a.b.example/", "https://badexample/"),
            ("https://*.shop.example/*", "https://shop.example/", "https://otherhop.example/"),
            ("*://*/cart*/pay?*", "https://a.example:8443/cart/1/pay?x=1", "https://a.example/cart/1/pay"),
            ("http://localhost:8080/a", "http://localhost:8080/a#b", "http://localhost/a"),
            ("https://SHOP.example/A", "https://user:x@shop.example/A", "https://shop.example/a"),
            ("https://a.example/*x*x", "https://a.example/xx", "https://a.example/x"),
        ] {
            let parsed = UrlPattern::parse(pattern).expect(pattern);
            assert!(parsed.matches(matching), "{pattern} matches {matching}");
            assert!(!parsed.matches(other), "{pattern} does not match {other}");
        }
    }

    #[test]
    fn a_pattern_of_another_form_is_refused() {
        for text in ["*", "", "shop.example/*", "ftp://a/*", "https://a", "https:///x", "https://*.*/x", "https://a*/"]
        {
            assert!(UrlPattern::parse(text).is_err(), "{text}");
        }
    }
}
