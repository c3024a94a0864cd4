//! The DNS stub: answers on its own and asks no server.
//!
//! A question alone carries data out, so none leaves the sandbox. A name that the policy could allow on some port gets
//! a synthetic address, every other one NXDOMAIN with the reason as an extended error (RFC 8914). REFUSED would be more
//! exact, but resolvers read it as "try again".

pub(crate) mod answer;
pub(crate) mod serve;
