//! Rules as texts.

use super::*;

#[test]
fn a_rule_says_behind_its_ports_whether_tls_is_required() {
    let allow = |text: &str| parse_allow(text, Source::flag(text)).map_err(|error| error.why);
    for (text, tls, canonical) in [
        ("a.test:443", None, "a.test:443"),
        ("a.test:443/tcp", Some(false), "a.test:443/tcp"),
        ("*.a.test:993,8443/tls", Some(true), "*.a.test:993,8443/tls"),
        ("a.test:443/tcp@/usr/bin/ssh", Some(false), "a.test:443/tcp"),
    ] {
        let rule = allow(text).unwrap();
        assert_eq!((rule.tls, rule.place().as_str()), (tls, canonical), "{text}");
        let private = parse_allow_private(text, Source::flag(text)).unwrap();
        assert_eq!(private, AnyRule::Name(Rule { private: true, ..rule }), "{text}");
    }
    assert_eq!(allow("a.test/tcp"), Err(RuleFault::SpeechWithoutPort { with: "/tcp" }));
    for text in ["a.test:443/udp", "a.test:443/TCP", "a.test:443/tcp/tls", "a.test:443/", "https://a.test/tcp"] {
        assert!(allow(text).is_err(), "{text}");
    }
    for text in ["10.0.0.5:443/tcp", "10.0.0.0/8:443/tls", "[fd00::1]:443/tcp"] {
        let refused = parse_allow_private(text, Source::flag(text)).map_err(|error| error.why);
        assert_eq!(refused, Err(RuleFault::OnlyForNames), "{text}");
    }
    let denied = parse_deny("a.test:443/tcp", Source::flag("x")).map_err(|error| error.why);
    assert_eq!(denied, Err(RuleFault::SpeechInDenial));
}

#[test]
fn a_range_of_mapped_addresses_is_its_ipv4_range() {
    let deny = |text: &str| match parse_deny(text, Source::flag(text)) {
        Ok(AnyRule::Address(rule)) => Ok(rule.net.to_string()),
        Ok(AnyRule::Name(_)) => panic!("{text}"),
        Err(error) => Err(error.why),
    };
    assert_eq!(deny("::ffff:93.184.216.0/120").unwrap(), "93.184.216.0/24");
    assert_eq!(deny("[::ffff:10.0.0.0/104]:80").unwrap(), "10.0.0.0/8");
    assert_eq!(deny("::ffff:0:0/96").unwrap(), "0.0.0.0/0");
    for cut in ["::/80", "::/8", "::fffe:0:0/95"] {
        assert_eq!(deny(cut), Err(RuleFault::CutsMapped), "{cut}");
    }
    for other in ["::/0", "::fffe:0:0/96", "fd00::/8", "::ffff:0:0:0/96"] {
        assert_eq!(deny(other).unwrap(), other);
    }
}

#[test]
fn a_wildcard_over_a_countrys_suffix_is_no_allowance() {
    for wide in ["*.co.uk", "*.com.au", "*.AC.jp.:80", "*.org.uk@/usr/bin/curl"] {
        let allowed = parse_allow(wide, Source::flag(wide)).map_err(|error| error.why);
        assert!(matches!(allowed, Err(RuleFault::Suffix { .. })), "{wide}: {allowed:?}");
        assert!(parse_allow_private(wide, Source::flag(wide)).is_err(), "{wide}");
        assert!(parse_deny(wide, Source::flag(wide)).is_ok(), "{wide}");
    }
    for fine in ["*.example.co.uk", "co.uk", "*.co.example", "*.go.com", "*.web.de", "*.com.corp.example"] {
        parse_allow(fine, Source::flag(fine)).unwrap();
    }
}
