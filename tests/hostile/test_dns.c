// Silent and dead name servers beside healthy endpoints, with the real programs.
int main(void) { return 0; }
