// The JSON of the back end, package diagnose/web. Fields are only ever added to it.

export interface Finding { code: string; grade: Grade; what: string; fix: string }
export type Grade = "proved" | "likely" | "note";

export interface Part { resource: string; error?: string; reading?: boolean }
export interface Summary {
  version: string; server: string; flags?: string;
  services: number; nodes: number; problems: number; waiting: number; synced: boolean;
  parts?: Part[]; agents: number; canFlows: boolean; canExamine: boolean;
}

export interface Problem {
  code?: string; title?: string; grade: Grade; service?: string; node?: string; what: string; fix?: string;
}
export interface Problems {
  counts: Partial<Record<Grade, number>>; found: number; offset: number; problems: Problem[]; services: number; waiting: number;
}

export interface Row {
  namespace: string; name: string; type: string; addresses?: string[]; ports?: string[];
  ready: number; endpoints: number; grade?: Grade; codes?: string[]; error?: string;
}
export interface Services { total: number; found: number; offset: number; services: Row[]; waiting: number }

export interface Candidate {
  slice?: string; address: string; port?: number; chosen: boolean; draining?: boolean; share: number; why: string;
}
export interface Decision {
  frontend: string; service?: string; entrance?: string; origin: Origin; action: string; reason: string;
  clientAddress?: string; sourceRanges?: string[]; choice?: string; candidates?: Candidate[];
}
export type Origin = "pod" | "node" | "outside";
export interface View { node: string; mode?: string; decisions: Decision[] | null; differs?: string[] }
export interface Endpoint { address: string; slice: string; pod?: string; node?: string; zone?: string; detail?: string }
export interface Explanation {
  answer: string; outcome: string; views?: View[]; endpoints?: Endpoint[]; notes?: string[]; notChecked?: string[];
  service?: {
    namespace: string; name: string; type: string; selector?: string; addresses?: string[]; internalTrafficPolicy?: string;
    externalTrafficPolicy?: string; podsSelected: number; endpointSlices: number; externalName?: string; loadBalancer?: string[];
  };
}
export interface Diagnosis {
  results: { group: string; check: string; findings?: Finding[] }[] | null; skipped?: string[]; notChecked?: string[];
}
export interface Propagation { node: string; inForce: string; seconds: number; since: string }
export interface Change { time: string; service: string; what: string[]; nodes?: Propagation[] }
export interface Changes { found: number; offset: number; changes: Change[]; notTold?: string }
export interface Service { row: Row; explanation: Explanation; diagnosis?: Diagnosis; changes?: Change[]; fromError?: string }

export interface NodeTraffic {
  node: string; mode?: string; error?: string;
  connections: number; refused: number; noEndpoint: number; notAllowed: number; in: number; out: number;
}
export interface Traffic { time: string; nodes: NodeTraffic[] | null; notTold?: string }

export interface Agent {
  error?: string; sync?: string; detail?: string; started?: string; applied?: string; services: number;
  leftOut?: { name?: string; what: string }[]; lacks?: string[]; conntrack?: { used: number; most: number };
}
export interface Node {
  name: string; ready: boolean; why?: string; addresses?: string[]; podCIDRs?: string[]; zone?: string;
  mode?: string; version?: string; agent?: Agent;
}
export interface Nodes { found: number; offset: number; nodes: Node[] | null; elsewhere?: string[]; error?: string }
export interface Cause { code: string; title: string; meaning: string; fix: string }
export interface Flow {
  time: string; node: string; protocol: string; client: string; clientName?: string; frontend: string; service: string;
  endpoint?: string; pod?: string; verdict: string; reason?: string; bytes?: { in: number; out: number }; tookSeconds?: number;
}

/** ask gets, or posts, and says what the back end says is wrong. */
export async function ask<T>(path: string, method = "GET", signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch("/api/v1/" + path, { method, signal });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Error("fairway web doesn't answer: has it been ended?");
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text) as T;
  let why = text;
  try {
    why = (JSON.parse(text) as { error: string }).error;
  } catch { /* the guard's plain words */ }
  throw new Error(why);
}

/** query is the part of a URL behind "?", without what is empty. */
export function query(values: Record<string, string | number | undefined>): string {
  const list = new URLSearchParams();
  for (const [k, v] of Object.entries(values)) if (v !== undefined && v !== "") list.set(k, String(v));
  const text = list.toString();
  return text && "?" + text;
}
