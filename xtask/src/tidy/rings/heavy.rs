//! Checks that only some crates use dependencies that take long to compile.
//!
//! A lock file does not list the enabled features of a crate. The feature of parquet that depends on Arrow is therefore
//! checked in the dependencies of each member.

use super::{Member, Problem};
use std::collections::{BTreeMap, BTreeSet};

/// The only crate that links a query engine and Arrow.
const SQL: &str = "curtail-sql";

/// The crate that must not link a store or its dependencies, because it is deployed next to every service.
const LEAN: &str = "curtail-proxy";

pub(super) fn check(
    member: &Member,
    members: &[Member],
    lock: &BTreeMap<String, Vec<String>>,
    problems: &mut Vec<Problem>,
) {
    if member.name == SQL {
        return;
    }
    let mut refuse = |what: &str, why: &str| {
        let text = format!("{} brings in {what}: {why}", member.name);
        problems.push(Problem::new(&member.manifest, 0, text));
    };
    for used in &member.uses {
        let is_arrow = used.name.split('-').next() == Some("arrow");
        let has_arrow = used.name == "parquet" && used.features.iter().any(|on| on == "arrow");
        if is_arrow || has_arrow {
            refuse("Arrow", "only curtail-sql does");
        }
    }
    let linked = linked(member, members, lock);
    if linked.contains(SQL) || linked.contains("datafusion") {
        refuse("DataFusion", "only curtail-sql does");
    }
    let stored = ["parquet", "object_store"].into_iter().find(|name| linked.contains(*name));
    if let Some(name) = stored.filter(|_| member.name == LEAN) {
        refuse(name, "it stands beside every service, and is lean");
    }
}

/// Returns the names of all crates that are linked into a crate, except dependencies of tests.
fn linked<'a>(
    member: &'a Member,
    members: &'a [Member],
    lock: &'a BTreeMap<String, Vec<String>>,
) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![member.name.as_str()]);
    while let Some(next) = open.pop() {
        let uses = match members.iter().find(|member| member.name == next) {
            Some(member) => {
                let uses = member.uses.iter().filter(|used| !used.dev);
                uses.map(|used| used.name.as_str()).collect()
            }
            None => lock
                .get(next)
                .map_or_else(Vec::new, |uses| uses.iter().map(String::as_str).collect()),
        };
        open.extend(uses.into_iter().filter(|name| reached.insert(*name)));
    }
    reached
}

#[cfg(test)]
mod tests;
