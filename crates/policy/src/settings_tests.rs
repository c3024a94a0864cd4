use super::*;

const FILE: &str = "[limits]\nmemory = \"8G\"\npids = 2048\n\n[sandbox]\nuid_base = 2_000_000_000\n\n[egress]\n\
                    trusted_ranges = [\"10.1.0.0/16\"]\nmissing_sni = \"refuse\"\n\n[changes]\nprotect = \
                    [\"Makefile\"]\n\n[binds]\nallow = [\"/home/you/.aws\"]\n";

#[test]
fn every_section_is_read_with_its_lines() {
    let settings = parse(FILE, "config.toml").unwrap();
    assert_eq!(settings.ceilings[&LimitKind::Memory].value, 8 << 30);
    assert_eq!(settings.ceilings[&LimitKind::Pids].from.to_string(), "config.toml:3:8");
    assert_eq!(settings.uid_base.unwrap().value, 2_000_000_000);
    assert_eq!(settings.egress.trusted_ranges[0].value, "10.1.0.0/16");
    assert!(!settings.egress.allow_missing_sni.unwrap().value);
    assert_eq!(
        (settings.protect[0].value.as_str(), settings.protect[0].from.to_string().as_str()),
        ("Makefile", "config.toml:13:12")
    );
    assert_eq!(settings.binds[0].value, "/home/you/.aws");
    let allowed = parse("[egress]\nmissing_sni = \"allow\"\n", "config.toml").unwrap();
    assert!(allowed.egress.allow_missing_sni.unwrap().value);
    assert!(parse("[sandbox]\ndrivers = [\"namespace\"]\n", "config.toml").is_ok());
    let refused = parse("[sandbox]\nauto = \"refuse\"\n", "config.toml").unwrap().allow_auto.unwrap();
    assert_eq!((refused.value, refused.from.to_string().as_str()), (false, "config.toml:2:8"));
}

#[test]
fn a_mistake_is_named_with_its_place() {
    for (text, place, said) in [
        ("[limit]\n", "1:2", "did you mean limits?"),
        ("[limits]\nmemry = 1\n", "2:1", "did you mean limits.memory?"),
        ("[limits]\nmemory = \"2GB\"\n", "2:10", "is not a size"),
        ("[sandbox]\nuid_base = 0\n", "2:12", "from 65536"),
        ("[sandbox]\nuid_base = -1\n", "2:12", "from 65536"),
        ("[sandbox]\nauto = \"off\"\n", "2:8", "auto must be"),
        ("[egress]\ntrusted_ranges = [\"10.0.0.0/33\"]\n", "2:19", "is not a range"),
        ("[egress]\nmax_mode = \"some\"\n", "2:12", "max_mode must be"),
        ("[egress]\ndeny = [\"a.test\", \"https://b.test/\"]\n", "2:19", "not a URL"),
        ("[egress]\nmissing_sni = true\n", "2:15", "text or a number"),
        ("[changes]\nprotect = [\"a\", \"!b\"]\n", "2:17", "names can only be added"),
        ("[changes]\nprotect = \"a\"\n", "2:11", "a list of texts"),
        ("[changes]\nprotct = []\n", "2:1", "did you mean changes.protect?"),
        ("limits = 1\n", "1:10", "write [limits]"),
        ("[binds]\nallow = [\"~/.aws\"]\n", "2:10", "is not a whole path"),
        ("[binds]\nallow = [\"/\"]\n", "2:10", "is not a whole path"),
        ("[binds]\nalow = []\n", "2:1", "did you mean binds.allow?"),
        // Read and not obeyed, they would mislead.
        ("[audit]\nfile = \"x\"\n", "1:2", ""),
        ("[sandbox]\ndrivers = [\"oci\"]\n", "2:11", "no other one yet"),
        ("[sandbox]\ndrivers = []\n", "2:11", "no other one yet"),
        ("[limits]\nmemory = \n", "2:10", ""),
        ("[limits]\npids = 1\npids = 2\n", "3:1", ""),
    ] {
        let error = parse(text, "config.toml").unwrap_err();
        assert_eq!(error.place.to_string(), place, "{text:?}: {error}");
        assert!(error.message.contains(said) && !error.message.is_empty(), "{text:?}: {error}");
    }
}

#[test]
fn a_users_own_file_only_lowers_limits_and_protects_names() {
    let operator = "[limits]\nmemory = \"2G\"\npids = 100\n[changes]\nprotect = [\"a\"]\n";
    let operator = parse(operator, "etc").unwrap();
    let own = "[limits]\nmemory = \"4G\"\npids = 50\ntimeout = \"1h\"\n[changes]\nprotect = [\"b\"]\n";
    let own = parse(own, "own").unwrap();
    let both = operator.clone().with_own(own).unwrap();
    let told: Vec<_> = both.ceilings.iter().map(|(kind, most)| (*kind, most.value, most.from.to_string())).collect();
    assert_eq!(
        told,
        [
            (LimitKind::Memory, 2 << 30, "etc:2:10".to_owned()),
            (LimitKind::Pids, 50, "own:3:8".to_owned()),
            (LimitKind::Timeout, 3_600_000, "own:4:11".to_owned())
        ]
    );
    let names: Vec<_> = both.protect.iter().map(|name| (name.value.as_str(), name.from.to_string())).collect();
    assert_eq!(names, [("a", "etc:5:12".to_owned()), ("b", "own:6:12".to_owned())]);
    for text in [
        "[sandbox]\nuid_base = 70000\n",
        "[sandbox]\nauto = \"allow\"\n",
        "[egress]\ntrusted_ranges = [\"10.0.0.0/8\"]\n",
        "[egress]\nmissing_sni = \"allow\"\n",
        "[egress]\nmax_mode = \"unrestricted\"\n",
        "[egress]\ndeny = [\"a.test\"]\n",
    ] {
        let error = operator.clone().with_own(parse(text, "own").unwrap()).unwrap_err();
        assert_eq!(error.place.line, 2);
        assert!(error.message.contains("belongs to the operator"));
    }
}

#[test]
fn a_user_names_a_proxy_only_where_the_operator_names_none() {
    let own = || {
        parse("[egress]\nupstream_proxy = \"http://own.test:1\"\nupstream_bypass = [\".corp.test\"]\n", "own").unwrap()
    };
    let both = Settings::default().with_own(own()).unwrap();
    assert_eq!(both.egress.upstream_proxy.unwrap().value, "http://own.test:1");
    assert_eq!(both.egress.upstream_bypass[0].value, ".corp.test");
    let operator = parse("[egress]\nupstream_proxy = \"http://proxy.test:3128\"\n", "etc").unwrap();
    let bypass = parse("[egress]\nupstream_bypass = [\"*\"]\n", "own").unwrap();
    for own in [own(), bypass] {
        let error = operator.clone().with_own(own).unwrap_err();
        assert!(error.message.contains("belongs to the operator"), "{error}");
    }
    let error = parse("[egress]\nupstream_bypass = [\"http://a.test\"]\n", "own").unwrap_err();
    assert!(error.message.contains("is not an entry"), "{error}");
}
