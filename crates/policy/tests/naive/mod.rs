//! A second decision, written from the description alone: strings, loops and no sharing with the first.

/// The only program that a rule is for.
pub type Only = Option<&'static str>;

/// A policy as texts.
#[derive(Debug, Clone)]
pub struct Naive {
    pub open: bool,
    pub allow: Vec<(String, Vec<u16>, bool, Only)>,
    pub deny: Vec<(String, Vec<u16>, Only)>,
    pub deny_nets: Vec<(String, u8)>,
    pub allow_nets: Vec<(String, u8, u16)>,
    pub trusted: Vec<(String, u8)>,
    pub own: Vec<String>,
}

/// Bits of an address, the number of them, as one comparable thing.
fn bits(text: &str) -> (u128, u32) {
    match text.parse::<std::net::IpAddr>().unwrap() {
        std::net::IpAddr::V4(a) => (u128::from(u32::from(a)), 32),
        std::net::IpAddr::V6(a) => (u128::from(a), 128),
    }
}

fn within(address: &str, net: &str, prefix: u8) -> bool {
    let ((a, wide), (n, other)) = (bits(address), bits(net));
    wide == other && (prefix == 0 || (a >> (wide - u32::from(prefix))) == (n >> (wide - u32::from(prefix))))
}

fn same_name(name: &str) -> String {
    name.trim_end_matches('.').to_lowercase()
}

fn means(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (same_name(pattern), same_name(name));
    match pattern.strip_prefix('*') {
        Some(dotted) => name.ends_with(dotted) && name.len() > dotted.len(),
        None => pattern == name,
    }
}

const HOPELESS: &[(&str, u8)] =
    &[("0.0.0.0", 8), ("224.0.0.0", 4), ("255.255.255.255", 32), ("ff00::", 8), ("::", 128)];
const SECRET: &[(&str, u8)] = &[("169.254.169.254", 32), ("fd00:ec2::254", 128)];
const SPECIAL: &[(&str, u8)] = &[
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("203.0.113.0", 24),
    ("240.0.0.0", 4),
    ("::", 96),
    ("::ffff:0:0", 96),
    ("2002::", 16),
    ("2001::", 32),
    ("2001:db8::", 32),
    ("fc00::", 7),
    ("fe80::", 10),
];

/// `:0:5efe:` or `:200:5efe:` before the last four bytes.
fn is_isatap(address: &str) -> bool {
    let (value, wide) = bits(address);
    let before = (value >> 32) as u32;
    wide == 128 && (before == 0x5efe || before == 0x0200_5efe)
}

impl Naive {
    /// Reports whether a connection to `host` (a name, or an address in usual form) is made when it resolves to
    /// `answers`, by `program` where that is known.
    pub fn allows(&self, host: &str, port: u16, answers: &[&str], program: Only) -> bool {
        let literal = host.parse::<std::net::IpAddr>().is_ok();
        if literal {
            let opened = self.opened_net(host, port);
            return !self.closed_net(host)
                && (opened || (self.open && !self.is_special(host)))
                && self.inner_ok(host, port, false);
        }
        for (pattern, ports, only) in &self.deny {
            let at = means(pattern, host) && (ports.is_empty() || ports.contains(&port));
            let surely_another = only.is_some() && program.is_some() && *only != program;
            if at && !surely_another {
                return false;
            }
        }
        let mut listed = false;
        let mut private = false;
        for (pattern, ports, is_private, only) in &self.allow {
            if means(pattern, host) && ports.contains(&port) && (only.is_none() || *only == program) {
                listed = true;
                private |= is_private;
            }
        }
        (listed || self.open)
            && !answers.is_empty()
            && answers.iter().all(|answer| self.answer_ok(answer, port, private))
    }

    fn answer_ok(&self, answer: &str, port: u16, private: bool) -> bool {
        if self.closed_net(answer) {
            return false;
        }
        if SECRET.iter().any(|(net, prefix)| within(answer, net, *prefix)) {
            return self.opened_net(answer, port);
        }
        let trusted = self.trusted.iter().any(|(net, prefix)| within(answer, net, *prefix));
        let open = !self.is_special(answer) || private || trusted || self.opened_net(answer, port);
        open && self.inner_ok(answer, port, private)
    }

    /// Evaluates also the IPv4 address in the last four bytes, behind 2002:, or in a Teredo address.
    fn inner_ok(&self, address: &str, port: u16, private: bool) -> bool {
        let (value, wide) = bits(address);
        if wide != 128 || value <= 1 {
            return true;
        }
        let tail = [("::", 96), ("::ffff:0:0", 96), ("64:ff9b::", 96)].iter().any(|(net, p)| within(address, net, *p));
        let inner = if tail || is_isatap(address) {
            vec![value as u32]
        } else if within(address, "2002::", 16) {
            vec![(value >> 80) as u32]
        } else if within(address, "2001::", 32) {
            vec![(value >> 64) as u32, u32::MAX - value as u32]
        } else {
            return true;
        };
        inner.iter().all(|inner| self.answer_ok(&std::net::Ipv4Addr::from(*inner).to_string(), port, private))
    }

    fn opened_net(&self, address: &str, port: u16) -> bool {
        let secret = SECRET.iter().any(|(net, prefix)| within(address, net, *prefix));
        self.allow_nets.iter().any(|(net, prefix, own)| {
            *own == port && within(address, net, *prefix) && (!secret || u32::from(*prefix) == bits(net).1)
        })
    }

    fn closed_net(&self, address: &str) -> bool {
        self.deny_nets.iter().any(|(net, prefix)| within(address, net, *prefix))
            || HOPELESS.iter().any(|(net, prefix)| within(address, net, *prefix))
    }

    fn is_special(&self, address: &str) -> bool {
        self.own.iter().any(|own| own == address)
            || is_isatap(address)
            || SPECIAL.iter().chain(SECRET).any(|(net, prefix)| within(address, net, *prefix))
    }
}
