//! The texts at the edges of each pattern of the OpenAPI document.

use super::document::Place;

/// A base-32 secret of 16 characters.
const SECRET: &str = "GEZDGNBVGY3TQOJQ";
const ID: &str = "01k9zk0000000000000000000a";

/// The edges of one pattern. In a text, `//HOST` stands for the host, and if it needs one the path, of a URL that the
/// field accepts; `:PORT` stands for a port of it.
pub(super) struct Edges {
    /// A place that has the pattern, as it is written.
    pub(super) of: &'static str,
    /// Texts that match, and that the server accepts.
    pub(super) inside: Vec<String>,
    /// Texts that do not match, and that the server refuses.
    pub(super) outside: Vec<String>,
    /// Texts that match, but that the server refuses, because a pattern cannot say why.
    pub(super) refused: Vec<String>,
}

fn edges(of: &'static str, inside: &[&str], outside: &[&str]) -> Edges {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Edges { of, inside: owned(inside), outside: owned(outside), refused: Vec::new() }
}

impl Edges {
    fn though_refused(mut self, texts: &[&str]) -> Self {
        self.refused.extend(texts.iter().map(|text| (*text).to_owned()));
        self
    }

    /// Adds texts of `part`: of `most` times `part` inside, and of one more outside.
    fn up_to(mut self, part: &str, most: usize) -> Self {
        self.inside.push(part.repeat(most));
        self.outside.push(part.repeat(most + 1));
        self
    }

    /// Returns the texts for a place.
    pub(super) fn texts(&self, place: &Place) -> [Vec<String>; 3] {
        let (host, port) = match (place.operation.as_str(), &*place.field("[0]")) {
            ("create_deployment", _) => ("//github.com/a/b", "//github.com:443/a/b"),
            (_, "login_url") => ("//d1.example", "//d1.example:65535"),
            _ => ("//a.example", "//a.example:65535"),
        };
        let filled = |texts: &[String]| {
            texts.iter().map(|text| text.replace("//HOST:PORT", port).replace("//HOST", host)).collect()
        };
        [filled(&self.inside), filled(&self.outside), filled(&self.refused)]
    }
}

/// Returns the edges of all patterns.
pub(super) fn all() -> Vec<Edges> {
    [names(), hosts(), addresses(), times_and_sizes(), secrets(), files(), words()].into_iter().flatten().collect()
}

fn names() -> Vec<Edges> {
    let control = ["a\0b", "a\nb", "\u{7f}", "a\u{9f}b"];
    let blank = ["", " ", "\u{2003}\n"];
    let around = ["a", " a ", "\r\na\u{85}", "\u{feff}", "\u{200b}", "Über 1,2"];
    let label = |of| {
        let outside = [control.as_slice(), &blank].concat();
        edges(of, &[around.as_slice(), &["a/b"]].concat(), &outside).up_to("ü", 255).though_refused(&[".", "..", ID])
    };
    let in_path = |of, also: &[&str], not: &[&str]| {
        let (inside, outside) = ([around.as_slice(), also].concat(), [control.as_slice(), &["a/b", "/"], not].concat());
        edges(of, &inside, &outside).up_to("ü", 255).though_refused(&[".", "..", ID])
    };
    let slug = ["a", "A.b_c-9", "...", "0"];
    let not_slug = ["a b", "a/b", "ä", " a", "a\n", "\0"];
    vec![
        label("create_proxy name"),
        in_path("create_browser name", &[], &blank),
        in_path("update_browser name", &[""], &blank[1..]),
        edges("create_profile name", &slug, &[not_slug.as_slice(), &[""]].concat())
            .up_to("x", 255)
            .though_refused(&[".", "..", ID]),
        edges("create_pool name", &[slug.as_slice(), &[""]].concat(), &not_slug)
            .up_to("x", 255)
            .though_refused(&[".", "..", ID]),
        edges("create_credential sso_provider", &["", " \n", "a", "\ta ", "a/b", "."], &control).up_to("ü", 255),
        edges("create_invocation app_name", &["a", " ", "ä/b", "."], &["\n", "a\0", "\u{7f}", "\u{85}"]),
        edges("create_browser engine", &["local"], &["", "1a", "A", "a_b", "-a", "ä", "local\n"]).though_refused(&[
            "a",
            "a-1",
            &"a".repeat(32),
        ]),
        edges("execute_script executor", &["a", "...", ".a", "..a", "-", "A_9"], &["", ".", "..", "a b", "ä", "a/b"]),
        edges("add_custom_tools namespace", &["a", ".", "A_b.c-9"], &["", "a b", "ä", "a/b", "a\n"]),
        edges(
            "download_profile version",
            &["", ID, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"],
            &[
                "8zzzzzzzzzzzzzzzzzzzzzzzzz",
                "01k9zk000000000000000000",
                "01k9zk0000000000000000000aa",
                "01k9zk0000000000000000000u",
                "01k9zk0000000000000000000i",
            ],
        ),
    ]
}

fn hosts() -> Vec<Edges> {
    let names =
        ["a", "a.b", "A.example", "a_b.example", "a.1b", "xn--bcher-kva.example", "bücher.example", "%61.example"];
    let none =
        ["", ".", "a..b", ".a", "a b", "a/b", "a:80", "a?b", "a#b", "a@b", "[g]", "a\\b", "a^b", "a|b", "a<b", "a!b"];
    let (label, long_label) = (format!("{}.example", "a".repeat(63)), format!("{}.example", "a".repeat(64)));
    let with_label = |mut edges: Edges| {
        edges.inside.push(label.clone());
        edges.outside.push(long_label.clone());
        edges
    };
    let too_long = "a.".repeat(126) + "aa";
    let hyphens = ["-a.example", "a-.example"];
    let around = [" a.example\n", "\u{2003}a.example"];
    let plain = [names.as_slice(), &around].concat();
    let all = [plain.as_slice(), &hyphens, &["a.example."]].concat();
    let without_around = [names.as_slice(), &hyphens, &["a.example."]].concat();
    let around_too = [none.as_slice(), &around].concat();
    vec![
        with_label(edges("create_credential domain", &plain, &none).though_refused(&[
            "1.2.3.4",
            "a.example.",
            "a.b.1",
        ])),
        with_label(edges(
            "create_auth_connection allowed_domains[]",
            &["a", "A.example", "a_b.example", "a.1b", "a.1", "*.a", "**.a.b", "a.*.b", " a.example\n"],
            &["", "*", "**", "a.*", "***.a", "a..b", "-a.example", "a-", "ü.example", "a.example.", "a b", "a/b"],
        ))
        .though_refused(&[&too_long]),
        with_label(
            edges(
                "create_proxy bypass_hosts[]",
                &[
                    all.as_slice(),
                    &["*.a.example", "1.2.3.4", "127.1", "0x7f.1", "::1", "[::1]", "::ffff:1.2.3.4", "10.0.0.0/8"],
                ]
                .concat(),
                &[none.as_slice(), &["*", "*.", "**.a", "10.0.0.0/", "a/8", "[::1", "[::1]:80"]].concat(),
            )
            .though_refused(&["10.0.0.0/33", "1:2:3", "[1:2:3]", "*.1.2.3.4"]),
        ),
        with_label(
            edges(
                "create_proxy config.host",
                &[all.as_slice(), &["1.2.3.4", "127.1", "::1", "[::1]"]].concat(),
                &[none.as_slice(), &["*.a.example", "::1/64"]].concat(),
            )
            .though_refused(&["1:2:3", "[1:2:3]"]),
        ),
        with_label(
            edges(
                "create_browser network.allowed_hosts[]",
                &[
                    without_around.as_slice(),
                    &["*.a.example", "8.8.8.8", "[2606:4700::1111]", "8.8.4.0/24", "2606:4700::/32"],
                ]
                .concat(),
                &[around_too.as_slice(), &["*", "*.", "**.a", "2606:4700::1111", "8.8.8.8:80"]].concat(),
            )
            .though_refused(&["*.com", "10.0.0.1", "8.8.8.8/0", "8.8.4.0/33", "127.1"]),
        ),
        with_label(
            edges(
                "create_browser network.proxy_routes[].hosts[]",
                &[without_around.as_slice(), &["*.a.example"]].concat(),
                &[around_too.as_slice(), &["*", "*.", "**.a", "[2606:4700::1111]", "8.8.4.0/24"]].concat(),
            )
            .though_refused(&["*.com", "8.8.8.8"]),
        ),
        with_label(
            edges(
                "create_browser network.private_hosts[]",
                &[
                    without_around.as_slice(),
                    &[
                        "*.a.example",
                        "a.example:1",
                        "a:65535",
                        "a:00080",
                        "10.0.0.1:80",
                        "[fc00::1]:80",
                        "[fc00::1]",
                        "10.0.0.0/8",
                    ],
                ]
                .concat(),
                &[
                    "",
                    ".",
                    "a..b",
                    " a.example",
                    "a b",
                    "a/b",
                    "a:",
                    "a:000080",
                    "a:+80",
                    "*",
                    "10.0.0.0/8:80",
                    "fc00::1",
                ],
            )
            .though_refused(&["a:0", "a:65536", "8.8.8.8", "*.com:80"]),
        ),
    ]
}

fn addresses() -> Vec<Edges> {
    let none = [
        "a.example",
        "http:",
        "ftp://HOST",
        "javascript:x",
        "https//HOST",
        "https://HOST\0",
        "ht\ntp://HOST",
        "http://HO\tST",
    ];
    let urls = ["https://HOST", "HTTPS://HOST", "https://HOST:PORT", "\u{a0}https://HOST\n"];
    let item = "a".repeat(16) + &"p".repeat(16);
    let store = |text: &str| text.replace("ITEM", &item);
    let of_store = |texts: &[&str]| texts.iter().map(|text| store(text)).collect::<Vec<_>>();
    let in_store = Edges {
        of: "extension_from_web_store url",
        inside: of_store(&[
            "https://chromewebstore.google.com/detail/ITEM",
            "HTTP://Chrome.Google.com/webstore/detail/any-name/ITEM",
            "https://chromewebstore.google.com/ITEM",
            "https://chromewebstore.google.com//x/ITEM/reviews/?hl=de&x=%20#a",
            "https://chromewebstore.google.com/detail/ITEM?",
        ]),
        outside: of_store(&[
            "",
            "ftp://chromewebstore.google.com/detail/ITEM",
            "https://chromewebstore.google.com",
            "https://chromewebstore.google.com/?ITEM",
            "https://chromewebstore.google.com/#/ITEM",
            "https://chromewebstore.google.com.evil.test/detail/ITEM",
            "https://chromewebstore.google.com:443/detail/ITEM",
            "https://x@chromewebstore.google.com/detail/ITEM",
            "https://chromewebstore.google.com/detail/ITEMa",
            "https://chromewebstore.google.com/detail/ITEM?a b",
            "https://chromewebstore.google.com\\detail/ITEM",
            "https://chromewebstore.google.com/detail/qITEM",
            " https://chromewebstore.google.com/detail/ITEM",
        ]),
        refused: Vec::new(),
    };
    let starts =
        ["about:blank", "https://a.example:65535/", "data:,x", "a+b-c.d:x", "javascripts:x", "https://\u{feff}"];
    let no_starts =
        ["a.example", ":x", "1a:x", "a:", "a:b c", "a:\n", " a:b", "ä:b", "javascript:x", "JavaScript:x", "a:\u{85}"];
    vec![
        edges("check_proxy url", &urls, &[none.as_slice(), &["", " "]].concat()).though_refused(&[
            "http:/",
            "https://",
            "https://a b.example",
            "https://HOST:65536",
            "https://[1]",
        ]),
        edges("create_auth_connection login_url", &[urls.as_slice(), &["", " \n"]].concat(), &none).though_refused(&[
            "http:/",
            "https://",
            "https://a b.example",
            "https://a.example:65536",
            "https://[1]",
        ]),
        edges("create_browser start_url", &starts, &[no_starts.as_slice(), &[""]].concat()),
        edges("update_browser start_url", &[starts.as_slice(), &[""]].concat(), &no_starts),
        in_store,
    ]
}

fn times_and_sizes() -> Vec<Edges> {
    let times = [
        "5m",
        "1h30m",
        "0s",
        "00000000000000000000005m",
        "30d",
        "2026-11-20",
        "2026-01-31",
        "2026-11-30T23:59:59Z",
        "2024-02-29",
        "2026-11-20t09:15:00z",
        "2026-11-20 09:15:00",
        "2026-11-20T09:15:00.1Z",
        "2026-11-20T09:15:00.1234567891Z",
        "2026-11-20T09:15:00+23:59",
        "2026-11-20T09:15:00-00:00",
        "2026-11-20T09:15:00 01:00",
        "2016-12-31T23:59:60Z",
        "+2026-11-20",
        " 2026-11-20",
        "0000-01-01",
        "9999-12-31",
    ];
    let none = [
        "5",
        "m",
        "5x",
        "-5m",
        "5 m",
        "now",
        "2026-13-01",
        "2026-00-01",
        "2026-11-00",
        "2026-11-32",
        "2026-1-1",
        "12026-01-01",
        "2026-11-20T24:00:00Z",
        "2026-11-20T09:60:00Z",
        "2026-11-20T09:15:61Z",
        "2026-11-20T09:15Z",
        "2026-11-20T09:15:00.Z",
        "2026-11-20T09:15:00+24:00",
        "2026-11-20T09:15:00+01",
        "2026-11-20Z",
    ];
    let sizes =
        ["1x1", "16384x1", "1x16384", "800X600", "800,600", "800x600x24", " 0800 x +600 ", "800x600,-1", "7999x8000"];
    let no_sizes = [
        "", "800", "x", "800x", "0x1", "1x0", "16385x1", "1x16385", "99999x1", "-1x1", "1.5x1", "1x1x1x1", "axb",
        "1x1x",
    ];
    vec![
        edges("follow_deployment since", &times, &none).though_refused(&[
            "31d",
            "2026-02-30",
            "2025-02-29",
            "-2026-01-01",
        ]),
        edges("get_connect_version viewport", &sizes, &no_sizes).though_refused(&["16384x16384"]),
    ]
}

fn secrets() -> Vec<Edges> {
    let uri = |text: &str| text.replace("SECRET", SECRET);
    let mut totp = edges(
        "create_credential totp_secret",
        &["", " \n", "gezd gnbv-gy3t\tqojq", " GEZDGNBVGY3TQOJQ==- = ", "-GEZDGNBVGY3TQOJQ", "GEZDGNBVGY3TQOJQGE"],
        &["GEZD=GNBVGY3TQOJQ", "1EZDGNBVGY3TQOJQ", "8EZDGNBVGY3TQOJQ", "ÄEZDGNBVGY3TQOJQ", "=", "-", "otpauth:x"],
    )
    .up_to("A", 128)
    .though_refused(&["otpauth://", "otpauth://hotp/?secret=GEZDGNBVGY3TQOJQ", "otpauth://totp/?secret=A"]);
    totp.inside.extend(["otpauth://totp/?secret=SECRET", "\nOTPAUTH://TOTP/a b?secret=SECRET&digits=8 "].map(uri));
    totp.inside.extend((16..=24).map(|length| "A".repeat(length)));
    totp.outside.push("A".repeat(15));
    vec![
        totp,
        edges("create_deployment source.auth.token", &["a", "!~"], &["", "a b", "ä", "a\n", "\u{7f}"]),
        edges(
            "create_telemetry_destination headers{#}",
            &["X-Key", "a", "!#$%&'*+-.^_`|~9"],
            &["", "a b", "a:", "ä", "a\n"],
        )
        .though_refused(&["Host", "content-type"]),
        edges(
            "create_telemetry_destination headers{}",
            &["a", "a\tb c", "!~"],
            &["", " ", " a", "a ", "ä", "a\nb", "\t"],
        ),
        edges("create_deployment env_vars{#}", &["A", "_", "a_9"], &["", "9a", "a-b", "ä", "a="]).up_to("A", 128),
        edges(
            "write_process_stdin data_b64",
            &["", "QQ==", "QUI=", "QUJD", "+/+/"],
            &["QQ", "QQ=", "Q===", "QQ==QQ==", "-_-_", "QQ==\n", "QU I=", "===="],
        )
        .though_refused(&["QR==", "QUJ="]),
    ]
}

fn files() -> Vec<Edges> {
    let mut entrypoint = edges(
        "create_deployment entrypoint_rel_path",
        &[
            "main.py",
            "./././src/app.ts",
            "a b/ü.mjs",
            ".py",
            "..py",
            "a.py/",
            "...x/.a/..b/a.js",
            ".../a.cjs",
            "a.py.mts",
        ],
        &[
            "",
            "/a.py",
            "a//b.py",
            "a/./b.py",
            "../a.py",
            "a/../b.py",
            "a\\b.py",
            "a\n.py",
            "a.rb",
            "a",
            "a.PY",
            "a.py//",
            ".",
            "py",
        ],
    )
    .though_refused(&[&format!("{}.py", "a".repeat(253))]);
    entrypoint.inside.push(format!("{}.py", "a".repeat(252)));
    vec![
        entrypoint,
        edges("create_directory path", &["/a", "/a b/../ü\n", "//a", "/a/"], &["", "a", "./a", " /a", "/a\0", "\\a"]),
        edges(
            "create_directory mode",
            &["000", "777", "0644", "1777"],
            &["", "77", "00000", "2777", "4755", "888", "0o7", "+77"],
        ),
        edges("execute_process args[]", &["", "a", "ü\n\u{1}"], &["\0", "a\0b"]),
    ]
}

fn words() -> Vec<Edges> {
    vec![
        edges("create_proxy config.country", &["US", "us", "Zz"], &["", "U", "USA", "U1", "ÄÖ", "u "]),
        edges("create_proxy config.city", &["a", "new_york-2"], &["", "A", "a b", "ä", "a."]).up_to("a", 100),
        edges("create_proxy config.zip", &["00000", "99999"], &["", "0000", "000000", "0000a", "٠٠٠٠٠"]),
        edges(
            "create_proxy config.asn",
            &["AS1", "as1", "aS0123456789", "1", "0000000000"],
            &["", "AS", "AS12345678901", "12345678901", "A1", "AS 1", "AS-1", "ASN1", "AS1a"],
        ),
        edges(
            "create_deployment region",
            &["home.attic"],
            &["", "a", "a.", ".a", "a.b.c", "A.b", "a_b.c", "a.b c", "ä.b"],
        )
        .though_refused(&["a.b", "-.-", "a-1.b_2-c"]),
        edges(
            "create_audit_destination prefix",
            &["", "a", "a/", "A_=-9/b.c", "a../b"],
            &["/", "/a", "a//b", "a//", ".a", "a/.b", "a b", "ä"],
        ),
        edges(
            "create_audit_destination region",
            &["a", "eu-central-1", "9", "a--b"],
            &["", "-a", "a-", "A", "a_b", "a.b", "-"],
        ),
        edges(
            "create_audit_destination kms_key_id",
            &["", "alias/a_b", "arn:aws:kms:x:1:key/A-9"],
            &["a b", "a.b", "ä", "a\n"],
        ),
    ]
}
